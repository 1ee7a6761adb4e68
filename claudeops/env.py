"""Typed reading of settings from the environment, with every mistake kept by name.

`environs` does the reading. A wrong value must stop the start with a message that names it, but
raising at import would show a traceback and only the first mistake; so each problem is noted, the
default stands in, and a system check (`claudeops.checks`) turns the notes into errors that every
command prints.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dotenv import load_dotenv
from environs import Env, ValidationError, validate

from claudeops.database_url import Database, database_from_url

Value = TypeVar("Value")

OUR_PREFIX = "CLAUDEOPS_"
SECONDS_PER_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
LOG_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
ADDRESS = validate.Regexp(r"https?://[^\s/]+")
FERNET_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")
FERNET_WANTED = (
    "a key of 44 characters as it stands in encryption_key in the state directory of the first "
    "host, or several, separated by commas: the first one seals, each of them opens"
)
ORIGIN = validate.Regexp(r"https?://[^/]+$")


@dataclass(frozen=True, slots=True)
class Problem:
    """One variable with a value that cannot be used."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Variable:
    """One setting: what holds now, and who said so."""

    name: str
    value: Any
    source: str
    """environment, default, or the file that was read."""


class _Variables(Env):
    """A blank value is the same as none: `CLAUDEOPS_PORT=` in a file asks for the default."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__()
        self._variables = variables

    def _get_value(self, env_key: str, default: Any) -> Any:
        return self._variables.get(env_key, "").strip() or default


class Environment:
    """The variables of one installation, and what is wrong with them."""

    def __init__(
        self, variables: Mapping[str, str], *, file: str = "", in_file: Collection[str] = ()
    ) -> None:
        self._env = _Variables(variables)
        self._file, self._in_file = file, in_file
        self._known: dict[str, Variable] = {}
        self.problems: list[Problem] = []

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All that were asked for, in that order."""
        return tuple(self._known.values())

    def text(self, name: str, default: str = "") -> str:
        return self._noted(name, self._text(name) or default)

    def flag(self, name: str, default: bool = False) -> bool:
        return self._read(name, default, self._env.bool, "yes or no")

    def integer(self, name: str, default: int, *, minimum: int, maximum: int | None = None) -> int:
        upper = "" if maximum is None else f" and at most {maximum}"
        wanted = f"a whole number, at least {minimum}{upper}"
        limits = validate.Range(minimum, maximum)
        return self._read(name, default, self._env.int, wanted, validate=limits)

    def amount(self, name: str, default: Decimal) -> Decimal:
        wanted = "an amount in dollars over 0, like 2.50"
        limits = validate.Range(0, min_inclusive=False)
        return self._read(name, default, self._env.decimal, wanted, validate=limits)

    def optional_amount(self, name: str) -> Decimal | None:
        """A limit; 0 is one, and none is none."""
        wanted = "an amount in dollars, 0 or more, like 2.50"
        return self._read(name, None, lambda name: _to_amount(self.text(name)), wanted)

    def share(self, name: str, default: Decimal) -> Decimal:
        return self._noted(name, self.optional_share(name) or default)

    def optional_share(self, name: str) -> Decimal | None:
        wanted = "a number over 0 and up to 1, like 0.80"
        limits = validate.Range(0, 1, min_inclusive=False)
        return self._read(name, None, self._env.decimal, wanted, validate=limits)

    def seconds(self, name: str, default: int, *, multiple_of: int = 1) -> int:
        grain = "" if multiple_of == 1 else f", a multiple of {multiple_of} seconds"
        wanted = f"a time like 90, 90s, 15m or 2h{grain}"
        return self._read(
            name, default, lambda name: _to_seconds(self._text(name), multiple_of), wanted
        )

    def names(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A comma-separated list; commas inside parentheses belong to an entry."""
        return self._noted(name, self._names(name) or default)

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        wanted = "one of " + ", ".join(choices)
        return self._read(name, default, self._env.str, wanted, validate=validate.OneOf(choices))

    def matching(self, name: str, default: str, pattern: str, wanted: str) -> str:
        shape = validate.Regexp(f"(?:{pattern})$")
        return self._read(name, default, self._env.str, wanted, validate=shape)

    def log_level(self, name: str, default: int) -> int:
        wanted = "one of " + ", ".join(map(logging.getLevelName, LOG_LEVELS))
        choices = validate.OneOf(LOG_LEVELS)
        return self._read(name, default, self._env.log_level, wanted, validate=choices)

    def origins(self, name: str) -> tuple[str, ...]:
        wanted = "addresses like https://ops.example.org"
        return self._read(name, (), lambda name: tuple(map(ORIGIN, self._names(name))), wanted)

    def address(self, name: str) -> str:
        wanted = "an address that begins with http"
        return self._read(name, "", self._env.str, wanted, validate=ADDRESS)

    def time_zone(self, name: str, default: str) -> str:
        wanted = "a time zone like Europe/Berlin"
        return self._read(name, default, lambda name: _to_time_zone(self._text(name)), wanted)

    def path(self, name: str, default: Path) -> Path:
        return self._noted(name, self._env.path(name, default).expanduser().absolute())

    def directory(self, name: str) -> str:
        """Absolute, or nothing where nothing is given."""
        given = str(self.path(name, Path())) if self._text(name) else ""
        return self._noted(name, given)

    def directories(self, name: str, default: tuple[Path, ...]) -> tuple[Path, ...]:
        wanted = "absolute directories like /srv,/opt/apps"
        return self._read(name, default, lambda name: _to_directories(self._names(name)), wanted)

    def fernet_keys(self, name: str) -> tuple[str, ...]:
        """One or several, separated by commas. They are never shown."""
        keys = self.names(name)
        if all(map(FERNET_KEY.fullmatch, keys)):
            return keys
        self.problems.append(Problem(name, f"{name} must be {FERNET_WANTED}."))
        return ()

    def database(self, name: str, default: Database) -> Database:
        """The address is never shown: it may hold a password."""
        text = self._text(name)
        self._noted(name, text or str(default.get("NAME", "")))
        try:
            return database_from_url(text) if text else default
        except ValueError as error:
            self.problems.append(Problem(name, f"{name} {error}."))
            return default

    def _read(
        self, name: str, default: Value, read: Callable[..., Value], wanted: str, **options: Any
    ) -> Value:
        text = self._text(name)
        if not text:
            return self._noted(name, default)
        try:
            return self._noted(name, read(name, **options))
        except (ValueError, ValidationError):
            self.problems.append(Problem(name, f"{name} is {text!r}, but must be {wanted}."))
            return self._noted(name, default)

    def _text(self, name: str) -> str:
        return self._env.str(name, "")

    def _names(self, name: str) -> tuple[str, ...]:
        return tuple(split_outside_parentheses(self._text(name)))

    def _noted(self, name: str, value: Value) -> Value:
        given = self._file if name in self._in_file else "environment"
        source = given if self._text(name) else "default"
        self._known[name] = Variable(name, value, source)
        return value


def read_dotenv(path: Path) -> frozenset[str]:
    """What is in the environment wins over the file; a `$` in a password stays a `$`.

    The names that were taken from it.
    """
    before = set(os.environ)
    load_dotenv(path, override=False, interpolate=False)
    return frozenset(set(os.environ) - before)


def unknown_names(given: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """Names of ours that nothing reads, each with the one that was probably meant, or nothing."""
    strange = sorted(name for name in given if name.startswith(OUR_PREFIX) and name not in known)
    return {name: next(iter(get_close_matches(name, known, 1, 0.85)), "") for name in strange}


def split_outside_parentheses(text: str) -> list[str]:
    entries, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth <= 0:
            entries.append("")
        else:
            entries[-1] += character
    return [entry.strip() for entry in entries if entry.strip()]


def _to_seconds(text: str, multiple_of: int) -> int:
    """Stricter than environs' durations, which also know weeks, milliseconds and less than 0."""
    parts = re.fullmatch(r"(\d+)\s*([smhd]?)", text.lower())
    seconds = int(parts[1]) * SECONDS_PER_UNIT[parts[2]] if parts else 0
    if seconds <= 0 or seconds % multiple_of:
        raise ValueError
    return seconds


def _to_amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation as error:
        raise ValueError from error
    if not amount.is_finite() or not 0 <= amount < 10**9:
        raise ValueError
    return amount


def _to_directories(entries: tuple[str, ...]) -> tuple[Path, ...]:
    paths = tuple(Path(entry).expanduser() for entry in entries)
    if not paths or not all(path.is_absolute() for path in paths):
        raise ValueError
    return paths


def _to_time_zone(text: str) -> str:
    try:
        return ZoneInfo(text).key
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError from error
