"""Typed reading of settings from the environment, with every mistake kept by name.

`environs` does the reading. A wrong value must stop the start with a message that names it, but
raising at import would show a traceback and only the first mistake; so each problem is noted, the
default stands in, and a system check (`claudeops.checks`) turns the notes into errors that every
command prints.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dotenv import load_dotenv
from environs import Env, ValidationError, validate

from claudeops.database_url import Database, database_from_url

Value = TypeVar("Value")

SECONDS_PER_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
LOG_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
ADDRESS = validate.Regexp(r"https?://[^\s/]+")
ORIGIN = validate.Regexp(r"https?://[^/]+$")


@dataclass(frozen=True, slots=True)
class Problem:
    """One variable with a value that cannot be used."""

    name: str
    message: str


class _Variables(Env):
    """A blank value is the same as none: `CLAUDEOPS_PORT=` in a file asks for the default."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__()
        self._variables = variables

    def _get_value(self, env_key: str, default: Any) -> Any:
        return self._variables.get(env_key, "").strip() or default


class Environment:
    """The variables of one installation, and what is wrong with them."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._env = _Variables(variables)
        self.problems: list[Problem] = []

    def text(self, name: str, default: str = "") -> str:
        return self._env.str(name, default)

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

    def share(self, name: str, default: Decimal) -> Decimal:
        wanted = "a number over 0 and up to 1, like 0.80"
        limits = validate.Range(0, 1, min_inclusive=False)
        return self._read(name, default, self._env.decimal, wanted, validate=limits)

    def seconds(self, name: str, default: int, *, multiple_of: int = 1) -> int:
        grain = "" if multiple_of == 1 else f", a multiple of {multiple_of} seconds"
        wanted = f"a time like 90, 90s, 15m or 2h{grain}"
        return self._read(
            name, default, lambda name: _to_seconds(self.text(name), multiple_of), wanted
        )

    def names(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A comma-separated list; commas inside parentheses belong to an entry."""
        text = self.text(name)
        return tuple(split_outside_parentheses(text)) if text else default

    def log_level(self, name: str, default: int) -> int:
        wanted = "one of " + ", ".join(map(logging.getLevelName, LOG_LEVELS))
        choices = validate.OneOf(LOG_LEVELS)
        return self._read(name, default, self._env.log_level, wanted, validate=choices)

    def origins(self, name: str) -> tuple[str, ...]:
        wanted = "addresses like https://ops.example.org"
        return self._read(name, (), lambda name: tuple(map(ORIGIN, self.names(name))), wanted)

    def address(self, name: str) -> str:
        wanted = "an address that begins with http"
        return self._read(name, "", self._env.str, wanted, validate=ADDRESS)

    def time_zone(self, name: str, default: str) -> str:
        wanted = "a time zone like Europe/Berlin"
        return self._read(name, default, lambda name: _to_time_zone(self.text(name)), wanted)

    def path(self, name: str, default: Path) -> Path:
        return self._env.path(name, default).expanduser().absolute()

    def database(self, name: str, default: Database) -> Database:
        """The address is never shown: it may hold a password."""
        try:
            return database_from_url(text) if (text := self.text(name)) else default
        except ValueError as error:
            self.problems.append(Problem(name, f"{name} {error}."))
            return default

    def _read(
        self, name: str, default: Value, read: Callable[..., Value], wanted: str, **options: Any
    ) -> Value:
        text = self.text(name)
        if not text:
            return default
        try:
            return read(name, **options)
        except (ValueError, ValidationError):
            self.problems.append(Problem(name, f"{name} is {text!r}, but must be {wanted}."))
            return default


def read_dotenv(path: Path) -> None:
    """What is in the environment wins over the file; a `$` in a password stays a `$`."""
    load_dotenv(path, override=False, interpolate=False)


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


def _to_time_zone(text: str) -> str:
    try:
        return ZoneInfo(text).key
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError from error
