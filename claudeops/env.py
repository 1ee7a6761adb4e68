"""Typed settings from the environment: database address, tiers, old names of settings.

`environs` reads the values. An invalid value is recorded as a problem and replaced by its default;
`claudeops.checks` turns the problems into errors, so that an operator sees all of them at once.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import dj_database_url
from dotenv import load_dotenv
from environs import Env, ValidationError, validate

from escalation.tiers import DEFAULT_TIERS, UNANSWERED_TOOLS, Tier

Database: TypeAlias = dict[str, Any]

SQLITE, POSTGRESQL = "django.db.backends.sqlite3", "django.db.backends.postgresql"
RECONNECTING_POSTGRESQL = "claudeops.postgresql"
SQLITE_OPTIONS = {
    # A writer waits for another writer; readers never wait in WAL mode.
    "timeout": 20,
    # Takes the write lock at the start: a later upgrade would fail with "database is locked".
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}

POSTGRESQL_OPTIONS = {
    # A lost server is noticed within seconds: a worker that is cut off must stop before another
    # host takes over its session.
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

dj_database_url.register("sqlite3", SQLITE)


def sqlite_database(path: Path | str) -> Database:
    return {"ENGINE": SQLITE, "NAME": str(path), "OPTIONS": dict(SQLITE_OPTIONS)}


def database_from_url(url: str) -> Database:
    """Return Django's settings for `DATABASE_URL`; raise ValueError if it cannot be used."""
    database = _parsed(url)
    if database["ENGINE"] == SQLITE:
        # dj_database_url reads an address without a path as a database in memory.
        if database.get("HOST") or database["NAME"] in {"", ":memory:"}:
            raise ValueError("must name a file, as in sqlite:////srv/claudeops.sqlite3")
        return sqlite_database(database["NAME"])
    if database["ENGINE"] != POSTGRESQL:
        raise ValueError("must begin with sqlite:/// or postgresql://")
    if not database["NAME"]:
        raise ValueError("must name a database, as in postgresql://user@host/claudeops")
    options = {**POSTGRESQL_OPTIONS, **database.get("OPTIONS", {})}
    return {**database, "ENGINE": RECONNECTING_POSTGRESQL, "OPTIONS": options}


def _parsed(url: str) -> Database:
    try:
        return dict(dj_database_url.parse(url))
    except dj_database_url.UnknownSchemeError as error:
        raise ValueError("must begin with sqlite:/// or postgresql://") from error
    except dj_database_url.ParseError as error:
        raise ValueError(
            "must be an address like postgresql://user:password@host:5432/claudeops, "
            "with special characters written as %40"
        ) from error


Value = TypeVar("Value")

OUR_PREFIX = "CLAUDEOPS_"
SECONDS_PER_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
LOG_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
ADDRESS = validate.Regexp(r"https?://[^\s/]+")
FERNET_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")
FERNET_WANTED = (
    "a key of 44 characters, as in the file encryption_key in the state directory of the first "
    "host, or several, separated by commas: the first one encrypts, all of them decrypt"
)
ORIGIN = validate.Regexp(r"https?://[^/]+$")
HIGHEST_POSSIBLE_TIER = 9

# Names of version 0.2, read until the next version: `claudeops.checks` warns about each.
OLD_NAMES = {
    "CLAUDEOPS_APPROVAL": "CLAUDEOPS_REQUIRE_APPROVAL",
    "CLAUDEOPS_DRY_FORK": "CLAUDEOPS_PLAN_SESSIONS",
    "CLAUDEOPS_LIMIT_RESERVE": "CLAUDEOPS_RATE_LIMIT_RESERVE",
    "CLAUDEOPS_MAX_LIMIT_WAITS": "CLAUDEOPS_MAX_RATE_LIMIT_WAITS",
    "CLAUDEOPS_ROOMS": "CLAUDEOPS_SANDBOX",
    "CLAUDEOPS_SILENCE": "CLAUDEOPS_IDLE_TIMEOUT",
    "CLAUDEOPS_TOOL_SILENCE": "CLAUDEOPS_TOOL_IDLE_TIMEOUT",
    **{
        f"CLAUDEOPS_TIER{number}_DOORS": f"CLAUDEOPS_TIER{number}_GRANTS"
        for number in range(1, HIGHEST_POSSIBLE_TIER + 1)
    },
}


def old_names_in(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the old names that are set, each with its new name."""
    return {old: new for old, new in OLD_NAMES.items() if variables.get(old, "").strip()}


@dataclass(frozen=True, slots=True)
class VariableProblem:
    """A variable whose value cannot be used."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A setting with its value and its source."""

    name: str
    value: Any
    source: str
    """`environment`, `default`, or the path of the file."""


class _Variables(Env):
    """Reads from a mapping in place of `os.environ`."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__()
        self._variables = variables

    def _get_value(self, env_key: str, default: Any) -> Any:
        return self._variables.get(env_key, "").strip() or default  # `NAME=` asks for the default


class Environment:
    """Settings of one installation, and the problems found in them."""

    def __init__(
        self, variables: Mapping[str, str], *, file: str = "", in_file: Collection[str] = ()
    ) -> None:
        old_names = old_names_in(variables)
        given = {name: text for name, text in variables.items() if text.strip()}
        self._env = _Variables({**{new: given[old] for old, new in old_names.items()}, **given})
        self._file = file
        self._in_file = {*in_file, *(new for old, new in old_names.items() if old in in_file)}
        self._known: dict[str, Variable] = {}
        self.problems: list[VariableProblem] = []

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables that were read, in the order of reading."""
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
        """Return a limit in dollars; 0 is a limit, None means no limit."""
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

    def choice(
        self,
        name: str,
        default: str,
        choices: tuple[str, ...],
        *,
        old: Mapping[str, str] | None = None,
    ) -> str:
        """Read one of the choices; `old` maps values of an earlier version to them."""
        wanted = "one of " + ", ".join(choices)
        known = validate.OneOf((*choices, *(old or {})))
        value = self._read(name, default, self._env.str, wanted, validate=known)
        return (old or {}).get(value, value)

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
        """Return an absolute path, or an empty string if none is set."""
        given = str(self.path(name, Path())) if self._text(name) else ""
        return self._noted(name, given)

    def directories(self, name: str, default: tuple[Path, ...]) -> tuple[Path, ...]:
        wanted = "absolute directories like /srv,/opt/apps"
        return self._read(name, default, lambda name: _to_directories(self._names(name)), wanted)

    def fernet_keys(self, name: str) -> tuple[str, ...]:
        """Return one or several keys, separated by commas. Messages never contain them."""
        keys = self.names(name)
        if all(map(FERNET_KEY.fullmatch, keys)):
            return keys
        self.problems.append(VariableProblem(name, f"{name} must be {FERNET_WANTED}."))
        return ()

    def database(self, name: str, default: Database) -> Database:
        """Return the database. Messages never contain its address, which may hold a password."""
        text = self._text(name)
        self._noted(name, text or str(default.get("NAME", "")))
        try:
            return database_from_url(text) if text else default
        except ValueError as error:
            self.problems.append(VariableProblem(name, f"{name} {error}."))
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
            self.problems.append(
                VariableProblem(name, f"{name} is {text!r}, but must be {wanted}.")
            )
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


def own_address(host: str, port: int) -> str:
    """Return the address of the web server; one that listens everywhere has the machine's name."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104 (not bound)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Return the host and the port of `host:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def read_dotenv(path: Path) -> frozenset[str]:
    """Load a `.env` file and return the names taken from it. The environment takes precedence.

    Values are not interpolated: a `$` in a password stays a `$`.
    """
    before = set(os.environ)
    load_dotenv(path, override=False, interpolate=False)
    return frozenset(set(os.environ) - before)


def unknown_names(given: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """Return names with our prefix that nothing reads, each with its closest match, if any."""
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
    """Read a duration; environs' own durations would allow weeks and negative values."""
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


def tiers_from(environment: Environment) -> dict[int, Tier]:
    """Return the tiers by number: the default ones, and each tier above them that has a name.

    A tier above the default ones starts from the values of the highest default tier.
    """
    tiers = {default.number: _overridden(default, environment) for default in DEFAULT_TIERS}
    highest = DEFAULT_TIERS[-1]
    for number in range(highest.number + 1, HIGHEST_POSSIBLE_TIER + 1):
        if not environment.text(_prefix(number) + "NAME"):
            break
        tiers[number] = _overridden(replace(highest, number=number), environment)
    return tiers


def _overridden(default: Tier, environment: Environment) -> Tier:
    prefix = _prefix(default.number)
    denied = environment.names(prefix + "DISALLOWED_TOOLS", default.disallowed_tools)
    return replace(
        default,
        name=environment.text(prefix + "NAME", default.name),
        model=environment.text(prefix + "MODEL", default.model),
        allowed_tools=environment.names(prefix + "ALLOWED_TOOLS", default.allowed_tools),
        disallowed_tools=tuple(dict.fromkeys((*UNANSWERED_TOOLS, *denied))),
        # The CLI reads 0 turns as unlimited.
        max_turns=environment.integer(prefix + "MAX_TURNS", default.max_turns, minimum=1),
        max_budget_usd=environment.amount(prefix + "MAX_BUDGET_USD", default.max_budget_usd),
        timeout_seconds=environment.seconds(prefix + "TIMEOUT", default.timeout_seconds),
        grants=environment.text(prefix + "GRANTS", default.grants),
        ask=_rules(environment, prefix + "ASK"),
    )


def _prefix(number: int) -> str:
    return f"CLAUDEOPS_TIER{number}_"


def _rules(environment: Environment, name: str) -> tuple[str, ...]:
    one = r"Bash\([^()]*[^()\s:*][^()]*\)"
    words = environment.matching(
        name, "", rf"{one}([\s,]+{one})*", "rules like Bash(docker restart:*)"
    )
    return tuple(re.findall(one, words))
