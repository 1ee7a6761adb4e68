"""The documents as the tests read them: their pages, their code, and the commands in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"claudeops", "manage.py"}
# What may stand before a program: it changes who runs it, not what is run.
BEFORE = {"$", "sudo", "env", "exec", "python", "python3"}
FENCE = re.compile(r"^```(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4,}(?![-*|\d])\S.*$", re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`")
CONTINUED = re.compile(r"\\\n\s*")
SESSION, PROMPT = "console", "$ "
SHELL = ("", "sh", "bash")
OPERATORS = set("();<>|&")


def handbook() -> list[Path]:
    """What a user reads: the README and all below `docs`."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@dataclass(frozen=True, slots=True)
class Typed:
    """One line of an example, with what it prints and how it ends."""

    line: str
    printed: tuple[str, ...]
    exit_code: int


@dataclass(frozen=True, slots=True)
class Example:
    """What a page lets its reader do: files to write, then lines to type, in order."""

    files: tuple[tuple[str, str], ...]
    typed: tuple[Typed, ...]


def shell_blocks(text: str) -> list[str]:
    """Return the blocks `sh` of a page, in order."""
    return [body for info, body in FENCE.findall(text) if info == "sh"]


def example_in(text: str) -> Example:
    """A block `console` is a session at a terminal; one that names a file after its language
    (```toml mine.toml) is that file."""
    blocks = FENCE.findall(text)
    named = [(info.split()[1], body) for info, body in blocks if len(info.split()) == 2]
    sessions = [body for info, body in blocks if info == SESSION]
    return Example(
        files=tuple(named),
        typed=tuple(typed for body in sessions for typed in _session(body)),
    )


def _session(body: str) -> Iterator[Typed]:
    for part in re.split(rf"^{re.escape(PROMPT)}", CONTINUED.sub(" ", body), flags=re.MULTILINE):
        line, _newline, printed = part.partition("\n")
        if line.strip():
            ends = re.search(r"# exit code (\d)$", line)
            shown = tuple(text for text in printed.splitlines() if text.strip())
            yield Typed(line, shown, int(ends[1]) if ends else 0)


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of ours as it stands in a document."""

    program: str
    words: tuple[str, ...]
    in_a_sentence: bool
    """Then it may be the beginning of one: `claudeops approval`."""

    @property
    def text(self) -> str:
        return shlex.join((self.program, *self.words))


def commands_in(text: str) -> list[Command]:
    """Those in blocks of code, then those in sentences; not the outlines of tables."""
    text = CONTINUED.sub(" ", text)
    blocks = [line for info, body in FENCE.findall(text) for line in _typed(info, body)]
    rest = FENCE.sub("", text)
    blocks += [line.strip() for line in INDENTED.findall(rest)]
    said = [" ".join(code.split()) for code in INLINE.findall(INDENTED.sub("", rest))]
    return [
        *(command for line in blocks for command in _commands(line, in_a_sentence=False)),
        *(
            command
            for code in said
            if not is_outline(code)
            for command in _commands(code, in_a_sentence=True)
        ),
    ]


def is_outline(code: str) -> bool:
    """`claudeops drill [SCENARIO] [--list]` tells what could be written, not what to write."""
    return "[" in code or r"\|" in code


def _typed(info: str, body: str) -> list[str]:
    """In a session at a terminal, what is typed begins with a prompt; the rest is printed."""
    lines = body.splitlines()
    if info == SESSION:
        return [line for line in lines if line.startswith(PROMPT)]
    return lines if info in SHELL else []


def _commands(line: str, *, in_a_sentence: bool) -> Iterator[Command]:
    for words in _simple_commands(line):
        named = _without_what_stands_before(words)
        program = named[0].rpartition("/")[2] if named else ""
        if program in PROGRAMS and named[1:] and re.match(r"[\w-]", named[1]):
            yield Command(program, tuple(named[1:]), in_a_sentence)


def _simple_commands(line: str) -> Iterator[list[str]]:
    """By the shell's own rules; what it could not read is taken word by word."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words: list[str] = []
    try:
        for word in reader:
            if set(word) <= OPERATORS:
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:
        words = line.split()
    yield words


def _without_what_stands_before(words: list[str]) -> list[str]:
    rest = list(words)
    while rest:
        word = rest[0].rpartition("/")[2]
        if word == "sudo" and rest[1:2] == ["-u"]:
            rest = rest[3:]
        elif word in BEFORE or re.match(r"[A-Z_]+=", rest[0]):
            rest = rest[1:]
        else:
            break
    return rest
