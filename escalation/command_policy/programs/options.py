"""Parses options, their values and operands.

A grammar names the options that it knows, in one line of text: `-a` and `--all` stand alone, `-n=`
and `--lines=` take a value (`-n 5`, `-n5`, `--lines 5`, `--lines=5`), `-i?` and `--color?` may have
one attached. Any other option, even an abbreviation, is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache

from escalation.command_policy.understanding import Argv, NotUnderstood, Understanding

Grammar = Callable[[Argv], Understanding]
"""Reads one argument vector."""


class Takes(Enum):
    NOTHING = ""
    VALUE = "="
    ATTACHED = "?"


@dataclass(frozen=True, slots=True)
class Line:
    """The parsed words after the name of a program."""

    options: tuple[tuple[str, str], ...]
    """Names and values in order; empty for an option without value."""
    operands: Argv
    terminated: bool
    """A `--` ended the options."""

    def has(self, *names: str) -> bool:
        return any(name in names for name, _value in self.options)

    def values(self, *names: str) -> Argv:
        return tuple(value for name, value in self.options if name in names)


@cache
def known(text: str) -> dict[str, Takes]:
    return {word.rstrip("=?"): Takes(word[-1] if word[-1] in "=?" else "") for word in text.split()}


def read(words: Argv, text: str, *, to_operand: bool = False) -> Line:
    """Parse words. `to_operand`: stop at the first operand, as in `docker … run -it`."""
    reader = _OptionReader(iter(words), known(text), to_operand)
    reader.run()
    return Line(tuple(reader.options), tuple(reader.operands), reader.terminated)


class _OptionReader:
    def __init__(self, words: Iterator[str], names: dict[str, Takes], to_operand: bool) -> None:
        self.words, self.names, self.to_operand = words, names, to_operand
        self.options: list[tuple[str, str]] = []
        self.operands: list[str] = []
        self.terminated = False

    def run(self) -> None:
        for word in self.words:
            if word == "--":
                self.terminated = True
                self.operands.extend(self.words)
            elif word == "-" or not word.startswith("-"):
                self.operands.append(word)
                if self.to_operand:
                    self.operands.extend(self.words)
            elif word.startswith("--"):
                self.long(word)
            else:
                self.short(word)

    def long(self, word: str) -> None:
        name, equals, value = word.partition("=")
        takes = self.names.get(name)
        if takes is None or (equals and takes is Takes.NOTHING):
            raise NotUnderstood(f"the option {name}")
        self.options.append((name, self.next_value(name) if self.wants(takes, equals) else value))

    def short(self, word: str) -> None:
        """Split `-abc` into `-a -b -c`, unless one takes the rest; some programs have `-long`."""
        name, equals, value = word.partition("=")
        if (takes := self.names.get(word)) is Takes.NOTHING:
            self.options.append((word, ""))
        elif len(word) > 2 and takes is Takes.VALUE:
            self.options.append((word, self.next_value(word)))
        elif equals and len(name) > 2 and self.names.get(name) is Takes.VALUE:
            self.options.append((name, value))
        else:
            self.cluster(word)

    def cluster(self, word: str) -> None:
        for index, letter in enumerate(word[1:], start=2):
            name, rest = f"-{letter}", word[index:]
            takes = self.names.get(name)
            if takes is None:
                raise NotUnderstood(f"the option {name if len(word) < 3 else f'{name} in {word}'}")
            if takes is Takes.NOTHING:
                self.options.append((name, ""))
                continue
            self.options.append((name, self.next_value(name) if self.wants(takes, rest) else rest))
            return

    @staticmethod
    def wants(takes: Takes, given: str) -> bool:
        return takes is Takes.VALUE and not given

    def next_value(self, name: str) -> str:
        value = next(self.words, None)
        if value is None:
            raise NotUnderstood(f"the option {name} without its value")
        return value


# Common parts of grammars.


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def by_level(levels: dict[int, str]) -> dict[str, int]:
    """Return the level of each verb of a table of verbs by level."""
    return {verb: level for level, verbs in levels.items() for verb in verbs.split()}


def require(words: Iterable[str], pattern: re.Pattern[str]) -> None:
    """Check that every word matches the whole pattern."""
    for word in words:
        if not pattern.fullmatch(word):
            raise NotUnderstood(f"`{word}`")


def looks(argv: Argv, grant: str = "") -> Understanding:
    """Return the meaning of a vector that only reads."""
    return Understanding(action=argv[0], arguments=argv[1:], grant=grant)


def acts(action: str, rest: Argv, level: int, why: str, grant: str = "") -> Understanding:
    return Understanding(action=action, arguments=rest, level=level, grant=grant, why=why)


def looking(options: str, grant: str, operand: str = r"[\w.:/@+%=,-]+") -> Grammar:
    """Return a grammar for a program that only reads with these options and plain operands."""
    pattern = re.compile(operand)

    def grammar(argv: Argv) -> Understanding:
        require(read(argv[1:], options).operands, pattern)
        return looks(argv, grant)

    return grammar


def reader(grant: str = "") -> Grammar:
    """Return a grammar for programs whose options write, change and start nothing."""
    return lambda argv: looks(argv, grant)
