"""Reads a program's options: which word is an option, which its value, which an operand.

A grammar names the options that it knows, in one line of text: `-a` and `--all` stand alone, `-n=`
and `--lines=` take a value (`-n 5`, `-n5`, `--lines 5`, `--lines=5`), `-i?` and `--color?` may have
one attached. Whatever is not named is unknown, abbreviations too, and then nobody can say which
word is what: the answer is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache

from escalation.gate.understanding import Word


class Takes(Enum):
    NOTHING = ""
    VALUE = "="
    ATTACHED = "?"


@dataclass(frozen=True, slots=True)
class Line:
    """The words after a program's name, told apart."""

    options: tuple[tuple[str, Word], ...]
    """Name and value in their order; the value of an option without one is empty."""
    operands: tuple[Word, ...]
    unsure: bool
    """A word before the last `--` is computed: it may be an option as well."""

    def has(self, *names: str) -> bool:
        return any(name in names for name, _value in self.options)

    def values(self, *names: str) -> tuple[Word, ...]:
        return tuple(value for name, value in self.options if name in names)


@cache
def known(text: str) -> dict[str, Takes]:
    return {word.rstrip("=?"): Takes(word[-1] if word[-1] in "=?" else "") for word in text.split()}


def read(words: tuple[Word, ...], text: str, *, to_operand: bool = False) -> Line | None:
    """None for an option that `text` does not name. `to_operand`: all after the first operand
    belongs to it, as in `docker … run -it`."""
    reader = _Reader(iter(words), known(text), to_operand)
    return reader.line() if reader.run() else None


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def literal(words: tuple[Word, ...]) -> tuple[str, ...] | None:
    """The words, if none of them is computed."""
    found = tuple(word for word in words if word is not None)
    return found if len(found) == len(words) else None


def attached(values: tuple[Word, ...]) -> tuple[Word, ...]:
    """Values of a short option as programs in Go read them: `-v=/srv:/srv` is `-v /srv:/srv`."""
    return tuple(value if value is None else value.removeprefix("=") for value in values)


class _Reader:
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
        """`-abc` is `-a -b -c`, unless one of them takes the rest; some programs have `-long`."""
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
