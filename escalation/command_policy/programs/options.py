"""Parses options, their values and operands.

A grammar names the options that it knows, in one line of text: `-a` and `--all` stand alone, `-n=`
and `--lines=` take a value (`-n 5`, `-n5`, `--lines 5`, `--lines=5`), `-i?` and `--color?` may have
one attached. Any other option, even an abbreviation, is unknown, and the result is None.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache

from escalation.command_policy.understanding import LOOK, SAFE, Understanding, Word


class Takes(Enum):
    NOTHING = ""
    VALUE = "="
    ATTACHED = "?"


@dataclass(frozen=True, slots=True)
class Line:
    """The parsed words after the name of a program."""

    options: tuple[tuple[str, Word], ...]
    """Names and values in order; empty for an option without value."""
    operands: tuple[Word, ...]
    unsure: bool
    """A word before the last `--` is computed and may be an option."""

    def has(self, *names: str) -> bool:
        return any(name in names for name, _value in self.options)

    def values(self, *names: str) -> tuple[Word, ...]:
        return tuple(value for name, value in self.options if name in names)


@cache
def known(text: str) -> dict[str, Takes]:
    return {word.rstrip("=?"): Takes(word[-1] if word[-1] in "=?" else "") for word in text.split()}


def read(words: tuple[Word, ...], text: str, *, to_operand: bool = False) -> Line | None:
    """Parse words; None if `text` lacks an option. `to_operand`: stop at the first operand, as in
    `docker … run -it`."""
    reader = _OptionReader(iter(words), known(text), to_operand)
    return reader.line() if reader.run() else None


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def literal(words: tuple[Word, ...]) -> tuple[str, ...] | None:
    """Return the words if none is computed."""
    found = tuple(word for word in words if word is not None)
    return found if len(found) == len(words) else None


def attached(values: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return values of a short option as Go programs read them: `-v=/srv:/srv`."""
    return tuple(value if value is None else value.removeprefix("=") for value in values)


class _OptionReader:
    def __init__(self, words: Iterator[Word], names: dict[str, Takes], to_operand: bool) -> None:
        self.words, self.names, self.to_operand = words, names, to_operand
        self.options: list[tuple[str, Word]] = []
        self.operands: list[Word] = []
        self.unsure = False

    def line(self) -> Line:
        return Line(tuple(self.options), tuple(self.operands), self.unsure)

    def run(self) -> bool:
        for word in self.words:
            if word == "--":
                self.operands.extend(self.words)
            elif word is None or word == "-" or not word.startswith("-"):
                self.operand(word)
            elif not (self.long(word) if word.startswith("--") else self.short(word)):
                return False
        return True

    def operand(self, word: Word) -> None:
        self.unsure |= word is None
        self.operands.append(word)
        if self.to_operand:
            self.operands.extend(self.words)

    def long(self, word: str) -> bool:
        name, equals, value = word.partition("=")
        takes = self.names.get(name)
        if takes is None or (equals and takes is Takes.NOTHING):
            return False
        if takes is Takes.VALUE and not equals:
            return self.next_value(name)
        self.options.append((name, value))
        return True

    def short(self, word: str) -> bool:
        """Split `-abc` into `-a -b -c`, unless one takes the rest; some programs have `-long`."""
        if self.names.get(word) is Takes.NOTHING:
            self.options.append((word, ""))
            return True
        if len(word) > 2 and self.names.get(word) is Takes.VALUE:
            return self.next_value(word)
        name, equals, value = word.partition("=")
        if equals and len(name) > 2 and self.names.get(name) is Takes.VALUE:
            self.options.append((name, value))
            return True
        for index, letter in enumerate(word[1:], start=2):
            name, rest = f"-{letter}", word[index:]
            takes = self.names.get(name)
            if takes is None:
                return False
            if takes is Takes.VALUE and not rest:
                return self.next_value(name)
            self.options.append((name, rest if takes is not Takes.NOTHING else ""))
            if takes is not Takes.NOTHING:
                return True
        return True

    def next_value(self, name: str) -> bool:
        value = next(self.words, "")
        self.unsure |= value is None
        self.options.append((name, value))
        return True


# Common results of grammars.

Grammar = Callable[[tuple[Word, ...]], Understanding | None]
"""Reads one argument vector, the program's plain name first."""

SINKS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "-"})


def looks(argv: tuple[Word, ...], *grants: str) -> Understanding:
    """Return the meaning of a command that only reads."""
    return Understanding(action=argv[0] or "", arguments=argv[1:], grants=frozenset(grants))


def acts(action: str, rest: tuple[Word, ...], level: int, why: str, *grants: str) -> Understanding:
    return Understanding(
        action=action, arguments=rest, level=level, grants=frozenset(grants), why=why
    )


def writes(
    action: str, rest: tuple[Word, ...], paths: Iterable[Word], *grants: str
) -> Understanding:
    """Return the meaning of a command that writes or removes paths."""
    places = tuple(path for path in paths if path not in SINKS)
    harmless = all(map(is_scratch, places))
    return Understanding(
        action=action,
        arguments=rest,
        level=LOOK if harmless else SAFE,
        grants=frozenset(grants),
        writes=places,
        why="" if harmless else "changes files",
    )


def is_scratch(path: Word) -> bool:
    """Return whether a path is in the /tmp of the sandbox."""
    return path is not None and f"{posixpath.normpath(path)}/".startswith("/tmp/")  # noqa: S108


def reader(*grants: str) -> Grammar:
    """Return a grammar for programs whose options write, change and start nothing."""
    return lambda argv: looks(argv, *grants)


def readers(names: str, *grants: str) -> dict[str, Grammar]:
    return dict.fromkeys(names.split(), reader(*grants))
