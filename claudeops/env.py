"""Typed reading of settings from the environment, with every mistake kept by name.

A wrong value must stop the start with a message that names it. Raising at import would show a
traceback and only the first mistake; so the reader notes each problem, goes on with the default,
and a system check (`claudeops.checks`) turns the notes into errors that every command prints.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Value = TypeVar("Value")

TRUE_WORDS = {"1", "true", "yes", "on"}
FALSE_WORDS = {"0", "false", "no", "off", ""}
SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Problem:
    """One variable with a value that cannot be used."""

    name: str
    message: str


class Environment:
    """The variables of one installation, and what is wrong with them."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.problems: list[Problem] = []

    def text(self, name: str, default: str = "") -> str:
        return self._variables.get(name, "").strip() or default

    def flag(self, name: str, default: bool = False) -> bool:
        return self._parsed(name, default, _to_flag)

    def integer(self, name: str, default: int, *, minimum: int, maximum: int | None = None) -> int:
        def parse(text: str) -> int:
            number = int(text)
            if number < minimum or (maximum is not None and number > maximum):
                raise ValueError
            return number

        upper = "" if maximum is None else f" and at most {maximum}"
        return self._parsed(name, default, parse, f"a whole number, at least {minimum}{upper}")

    def amount(self, name: str, default: Decimal) -> Decimal:
        return self._parsed(name, default, _to_amount, "an amount in dollars over 0, like 2.50")

    def share(self, name: str, default: Decimal) -> Decimal:
        return self._parsed(name, default, _to_share, "a number over 0 and up to 1, like 0.80")

    def seconds(self, name: str, default: int, *, multiple_of: int = 1) -> int:
        def parse(text: str) -> int:
            unit = SECONDS_PER_UNIT.get(text[-1].lower())
            number = int(text[:-1]) * unit if unit else int(text)
            if number <= 0 or number % multiple_of:
                raise ValueError
            return number

        grain = "" if multiple_of == 1 else f", a multiple of {multiple_of} seconds"
        return self._parsed(name, default, parse, f"a time like 90, 90s, 15m or 2h{grain}")

    def names(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A comma-separated list; commas inside parentheses belong to an entry."""
        text = self.text(name)
        return tuple(split_outside_parentheses(text)) if text else default

    def one_of(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        return self._parsed(name, default, lambda text: _member(text, choices), _listed(choices))

    def origins(self, name: str) -> tuple[str, ...]:
        return self._parsed(name, (), _to_origins, "addresses like https://ops.example.org")

    def address(self, name: str) -> str:
        return self._parsed(name, "", _to_address, "an address that begins with http")

    def time_zone(self, name: str, default: str) -> str:
        return self._parsed(name, default, _to_time_zone, "a time zone like Europe/Berlin")

    def path(self, name: str, default: Path) -> Path:
        return Path(self.text(name, str(default))).expanduser().absolute()

    def _parsed(
        self,
        name: str,
        default: Value,
        parse: Callable[[str], Value],
        wanted: str = "yes or no",
    ) -> Value:
        text = self.text(name)
        if not text:
            return default
        try:
            return parse(text)
        except (ValueError, InvalidOperation):
            self.problems.append(Problem(name, f"{name} is {text!r}, but must be {wanted}."))
            return default


def split_outside_parentheses(text: str) -> list[str]:
    entries, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth <= 0:
            entries.append("")
        else:
            entries[-1] += character
    return [entry.strip() for entry in entries if entry.strip()]


def load_dotenv(path: Path, variables: MutableMapping[str, str] = os.environ) -> None:
    """Read NAME=value lines; what is already in the environment wins over the file."""
    if not path.is_file():
        return
    for line in path.read_text().splitlines():
        name, separator, value = line.strip().removeprefix("export ").partition("=")
        if separator and not name.startswith("#"):
            variables.setdefault(name.strip(), _without_quotes(value.strip()))


def _without_quotes(value: str) -> str:
    quoted = re.match(r"""(["'])(.*?)\1\s*(#.*)?$""", value)
    return quoted[2] if quoted else value.split(" #", 1)[0].rstrip()


def _listed(choices: tuple[str, ...]) -> str:
    return "one of " + ", ".join(choices)


def _member(text: str, choices: tuple[str, ...]) -> str:
    if text.upper() not in choices:
        raise ValueError
    return text.upper()


def _to_origins(text: str) -> tuple[str, ...]:
    origins = tuple(split_outside_parentheses(text))
    if not all(re.match(r"https?://[^/]+$", origin) for origin in origins):
        raise ValueError
    return origins


def _to_address(text: str) -> str:
    if not re.match(r"https?://[^\s/]+", text):
        raise ValueError
    return text


def _to_time_zone(text: str) -> str:
    try:
        return ZoneInfo(text).key
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError from error


def _to_flag(text: str) -> bool:
    if text.lower() not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError
    return text.lower() in TRUE_WORDS


def _to_share(text: str) -> Decimal:
    share = Decimal(text)
    if not share.is_finite() or not 0 < share <= 1:
        raise ValueError
    return share


def _to_amount(text: str) -> Decimal:
    amount = Decimal(text)
    if not amount.is_finite() or amount <= 0:
        raise ValueError
    return amount
