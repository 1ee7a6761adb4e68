"""Reads configuration files: content, line of each key, mistakes, and referenced secrets."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

from escalation.configuration.declaration import (
    NONE,
    ChannelDeclaration,
    Document,
    Place,
    SourceDeclaration,
    WatchDeclaration,
    mistakes_in,
)

LARGEST_FILE = 1_000_000
LONGEST_PATH = 1_000
LARGEST_SECRET = 16_000
_AT = re.compile(r" \(at line (\d+), column \d+\)$")
_END = re.compile(r" \(at end of document\)$")


T = TypeVar("T")


@dataclass(frozen=True, order=True, slots=True)
class Mistake:
    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration(Generic[T]):
    """Something declared, with its place."""

    name: str
    content: T
    file: str
    place: Place
    lines: Mapping[Place, int]

    def line_of(self, *below: str | int) -> int:
        """Return the line of a key of it, or the nearest line above."""
        return line_of(self.lines, (*self.place, *below))

    def mistake(self, message: str, *below: str | int) -> Mistake:
        place = (*self.place, *below)
        return Mistake(self.file, self.line_of(*below), said(place, message))


@dataclass(frozen=True, kw_only=True, slots=True)
class Declarations:
    """Content of all files that were read."""

    root: str
    """File or directory that was given."""
    watches: tuple[Declaration[WatchDeclaration], ...] = ()
    sources: tuple[Declaration[SourceDeclaration], ...] = ()
    channels: tuple[Declaration[ChannelDeclaration], ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values of the references that could be resolved."""
    mistakes: tuple[Mistake, ...] = ()
    files: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    """Names of the watches that are declared, rightly or wrongly."""


def read(path: Path, environment: Mapping[str, str] = os.environ) -> Declarations:
    """Read a file or the files `*.toml` of a directory, with every mistake in them."""
    try:
        files = _files(path)
    except OSError as error:
        return _unreadable(path, f"cannot be read: {error.strerror}")
    if any(len(str(file)) > LONGEST_PATH for file in files):
        return _unreadable(path, f"has more than {LONGEST_PATH} characters in the name of a file")
    if not files:
        return _unreadable(path, "has no file *.toml: nothing is declared there")
    found, mistakes = [], []
    for file in files:
        document, wrong = read_file(file)
        mistakes += wrong
        if document is not None:
            found.append(document)
    return _together(path, [str(file) for file in files], found, mistakes, environment)


def _unreadable(path: Path, why: str) -> Declarations:
    return Declarations(root=str(path), mistakes=(Mistake(str(path), 1, f"{path} {why}"),))


def _files(path: Path) -> list[Path]:
    if not stat.S_ISDIR(path.stat().st_mode):
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix == ".toml" and file.is_file())


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadFile:
    name: str
    content: Mapping[str, Any]
    lines: Mapping[Place, int]
    document: Document
    """Without the watches, sources and channels that have a mistake."""


def read_file(file: Path) -> tuple[ReadFile | None, list[Mistake]]:
    """Read one file. Without a document, the mistakes say why."""
    name = str(file)
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
        text = data.decode()
    except OSError as error:
        return None, [Mistake(name, 1, f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return None, [Mistake(name, line, "the file is not in UTF-8")]
    if len(data) > LARGEST_FILE:
        return None, [Mistake(name, 1, f"the file has more than {LARGEST_FILE} bytes")]
    try:
        content = parse(text)
    except ValueError as error:
        line, message = placed(error, text)
        return None, [Mistake(name, line, f"not TOML: {message}")]
    lines = lines_in(text)
    found = mistakes_in(content)
    mistakes = [
        Mistake(name, line_of(lines, place), said(place, message)) for place, message in found
    ]
    wrong = {place[:2] for place, _message in found}
    valid = {
        kind: {name: value for name, value in table.items() if (kind, name) not in wrong}
        for kind, table in content.items()
        if kind in Document.model_fields and isinstance(table, dict)
    }
    document = Document.model_validate(valid)
    return ReadFile(name=name, content=content, lines=lines, document=document), mistakes


def parse(text: str) -> dict[str, Any]:
    """Parse TOML. Raise ValueError, also for nesting that is too deep."""
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (RecursionError, ArithmeticError) as error:
        raise ValueError(f"a value cannot be read ({type(error).__name__})") from error


def placed(error: ValueError, text: str) -> tuple[int, str]:
    """Return the line of a mistake of the parser, and its message without the position."""
    message = str(error)
    if found := _AT.search(message):
        return int(found[1]), message[: found.start()].strip()
    return text.count("\n") + 1, _END.sub("", message)


def said(place: Place, message: str) -> str:
    return f"{dotted(place)}: {message}" if place else message


def dotted(place: Place) -> str:
    """Format a place as keys of TOML, like watches.shop.maintenance[1]."""
    words = ""
    for part in place:
        if isinstance(part, int):
            words += f"[{part + 1}]"
        else:
            shown = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
            words += f".{shown}" if words else shown
    return words


def lines_in(text: str) -> dict[Place, int]:
    """Return the line of each key and table of a valid file.

    A statement ends with the first line up to which the parser accepts it by itself.
    """
    found: dict[Place, int] = {}
    arrays: dict[Place, int] = {}
    table: Place = ()
    lines = iter(enumerate((line.removesuffix("\r") for line in text.split("\n")), start=1))
    for number, line in lines:
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if bare.startswith("["):
            table = _table(bare, arrays)
            found.setdefault(table, number)
            continue
        for place in _keys(_statement(line, lines)):
            found.setdefault((*table, *place), number)
    return found


def _statement(first: str, lines: Iterator[tuple[int, str]]) -> dict[str, Any]:
    text, line = first, first
    while True:
        # No other line can end a value of several lines.
        if line is first or any(mark in line for mark in ("]", "}", '"""', "'''")):
            try:
                return parse(text)
            except ValueError:
                pass
        following = next(lines, None)
        if following is None:
            return {}
        line = following[1]
        text += f"\n{line}"


def _keys(value: object, place: Place = ()) -> Iterator[Place]:
    """Yield the places of the tables and keys of a statement."""
    if place:
        yield place
    pairs: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield from _keys(inner, (*place, key))


def _table(header: str, arrays: dict[Place, int]) -> Place:
    """Return the place of a header `[a.b]` or `[[a.b]]`, with positions in arrays of tables."""
    value: Any = parse(header)
    place: Place = ()
    names = []
    while value:
        value = value[0] if isinstance(value, list) else value
        if not value:
            break
        ((name, value),) = value.items()
        names.append(name)
    for name in names[:-1]:
        place = (*place, name)
        if place in arrays:
            place = (*place, arrays[place])
    place = (*place, names[-1])
    if header.startswith("[["):
        arrays[place] = arrays.get(place, -1) + 1
        place = (*place, arrays[place])
    return place


def line_of(lines: Mapping[Place, int], place: Place) -> int:
    """Return the line of a place, or that of the nearest table above it."""
    for length in range(len(place), 0, -1):
        if line := lines.get(place[:length]):
            return line
    below = [line for other, line in lines.items() if other[: len(place)] == place]
    return min(below, default=1)


# All files together.


def _together(
    path: Path,
    files: list[str],
    found: list[ReadFile],
    mistakes: list[Mistake],
    environment: Mapping[str, str],
) -> Declarations:
    mistakes = [*mistakes, *_duplicates(found)]
    watches = tuple(_declared(found, "watches"))
    sources = tuple(_declared(found, "sources"))
    channels = tuple(_declared(found, "channels"))
    secrets: dict[str, str] = {}
    for declaration, key, reference in _references(sources, channels):
        if reference not in secrets:
            value, problem = resolved(reference, environment)
            if problem:
                mistakes.append(declaration.mistake(problem, key))
                continue
            secrets[reference] = value
    return Declarations(
        root=str(path),
        watches=watches,
        sources=sources,
        channels=channels,
        secrets=secrets,
        mistakes=tuple(sorted(set(mistakes))),
        files=tuple(files),
        names=frozenset(name for one in found for name in _names(one, "watches")),
    )


def _declared(found: list[ReadFile], kind: str) -> Iterator[Declaration[Any]]:
    for one in found:
        for name, content in getattr(one.document, kind).items():
            place = (kind, name)
            yield Declaration(
                name=name, content=content, file=one.name, place=place, lines=one.lines
            )


def _names(one: ReadFile, kind: str) -> Iterable[str]:
    table = one.content.get(kind, {})
    return table if isinstance(table, dict) else ()


def _duplicates(found: list[ReadFile]) -> Iterator[Mistake]:
    """Yield a mistake for everything that a second file declares again."""
    first: dict[tuple[str, str], tuple[str, int]] = {}
    for one in found:
        for kind in Document.model_fields:
            for name in _names(one, kind):
                line = line_of(one.lines, (kind, name))
                if (kind, name) in first:
                    where = ":".join(map(str, first[kind, name]))
                    words = f"{dotted((kind, name))} is declared in {where} already"
                    yield Mistake(one.name, line, words)
                else:
                    first[kind, name] = one.name, line


def _references(
    sources: Iterable[Declaration[SourceDeclaration]],
    channels: Iterable[Declaration[ChannelDeclaration]],
) -> Iterator[tuple[Declaration[Any], str, str]]:
    for source in sources:
        if source.content.token:
            yield source, "token", source.content.token
        if source.content.secret and source.content.secret != NONE:
            yield source, "secret", source.content.secret
    for channel in channels:
        yield channel, "address", channel.content.address


def resolved(reference: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the secret that a reference names, or an empty string and what is wrong."""
    kind, _colon, name = reference.partition(":")
    if kind == "env":
        value = environment.get(name, "")
        return value, "" if value else f"the environment variable {name} is not set"
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return "", f"{name} is no ordinary file"
            value = stream.read(LARGEST_SECRET + 1)
    except OSError as error:
        return "", f"{name} cannot be read: {error.strerror}"
    except ValueError:
        return "", f"{name} is not text in UTF-8"
    if len(value) > LARGEST_SECRET:
        return "", f"{name} has more than {LARGEST_SECRET} characters"
    value = value.rstrip("\r\n")
    return value, "" if value else f"{name} is empty"


def unknown_watches(found: Declarations, known: Iterable[str]) -> list[Mistake]:
    """Return a mistake for each reference to a watch that neither a file nor the database has."""
    names = sorted({*known, *found.names})
    mistakes = []
    for declaration, place, name in _named_watches(found):
        if name not in names:
            near = get_close_matches(name, names, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"watches: {', '.join(names) or 'none'}"
            words = f"there is no watch {name}: {hint}"
            mistakes.append(declaration.mistake(words, *place))
    return mistakes


def _named_watches(found: Declarations) -> Iterator[tuple[Declaration[Any], Place, str]]:
    for source in found.sources:
        if source.content.watch is not None:
            yield source, ("watch",), source.content.watch
        for number, route in enumerate(source.content.routes):
            yield source, ("routes", number, "watch"), route.watch
    for channel in found.channels:
        for number, name in enumerate(channel.content.watches):
            yield channel, ("watches", number), name
