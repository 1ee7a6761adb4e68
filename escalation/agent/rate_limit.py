"""Recognizes runs that ended at the rate limit, and the time at which the limit ends. No I/O.

Subscriptions report it in the stream (an event, or the text of the result), keys by status 429 and
`retry-after`, which the API proxy sees. A status 429 in an unknown form waits longer each time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

LONGEST_WAIT = timedelta(days=8)
"""Longer than any window of an account; later times are not believed."""
FIRST_BACK_OFF = timedelta(minutes=5)
LONGEST_BACK_OFF = timedelta(hours=5)
JUST_PASSED = timedelta(minutes=10)
"""A clock time that passed less than this ago does not mean tomorrow."""
AFTER_RESET = timedelta(seconds=5)
"""Wait after a limit that has just ended; clocks differ a little."""
WORDS_LENGTH = 300
MILLISECONDS = 100_000_000_000
"""No time in seconds is this large before the year 5138."""

TOO_MANY_REQUESTS = 429
UNIFIED = "anthropic-ratelimit-unified-"
WITH_EPOCH = re.compile(r"limit reached\|(\d+)", re.IGNORECASE)
WITH_CLOCK = re.compile(
    r"(?P<what>limit|extra usage)\b.{0,40}?\bresets\s+"
    r"(?:(?P<month>[a-z]{3})[a-z]*\s+(?P<day>\d{1,2})(?:,|\s+at)?\s+)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>am|pm)\s*\((?P<zone>[^)]+)\)",
    re.IGNORECASE | re.DOTALL,
)
SAYS_LIMIT = re.compile(
    r"usage limit reached|you['\u2019]ve hit your .{0,40}limit|you['\u2019]re out of extra usage",
    re.IGNORECASE,
)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
UNKNOWN_SHAPE, BY_KEY = "unknown", "requests"
WINDOW_NAMES = {"5h": "five_hour", "7d": "seven_day"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLimitReached:
    until: datetime
    kind: str
    """Name of the window in the API; `requests` for the rate of a key."""
    words: str
    """Message of the API."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """The used share of a window, from 0 to 1."""

    name: str
    share: float
    resets_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitSigns:
    """All signs of the rate limit in one run."""

    result: Mapping[str, Any] = field(default_factory=dict)
    """The last result line of the stream."""
    event: Mapping[str, Any] = field(default_factory=dict)
    """The last `rate_limit_info` of the stream."""
    status: int = 0
    """Of the last answer about limits that the API proxy saw."""
    retry_after: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of that answer that begin with `anthropic-ratelimit-`, in lower case."""

    @property
    def text(self) -> str:
        said = self.result.get("result")
        return said if isinstance(said, str) else ""

    @property
    def ended_by_limit(self) -> bool:
        """Read only what the CLI says of a failed run: a model may write anything."""
        if self.result.get("is_error") is not True or self.result.get("subtype") != "success":
            return False
        return (
            self.result.get("api_error_status") == TOO_MANY_REQUESTS
            or bool(re.match(r"API Error:? \(?(?:Request rejected \()?429\b", self.text))
            or bool(SAYS_LIMIT.match(self.text.removeprefix("Claude AI ")))
            or bool(WITH_EPOCH.search(self.text))
        )


def limit_in(signs: LimitSigns, now: datetime, in_a_row: int = 0) -> RateLimitReached | None:
    """Return the limit that ended the run, if any. `in_a_row` counts the runs before it."""
    if not signs.ended_by_limit:
        return None
    words = (" ".join(signs.text.split()) or "status 429")[:WORDS_LENGTH]
    stated = [(kind, moment) for kind, moment in _stated(signs, now) if moment is not None]
    for kind, moment in stated:
        if moment > now:
            return RateLimitReached(until=min(moment, now + LONGEST_WAIT), kind=kind, words=words)
    for kind, moment in stated:
        # It is over: try again at once, and wait as for an unknown end if that does not help.
        if now - moment < JUST_PASSED and not in_a_row:
            return RateLimitReached(until=now + AFTER_RESET, kind=kind, words=words)
    return RateLimitReached(until=now + back_off(in_a_row), kind=UNKNOWN_SHAPE, words=words)


def back_off(in_a_row: int) -> timedelta:
    doublings = min(max(0, in_a_row), 10)
    return min(FIRST_BACK_OFF * (1 << doublings), LONGEST_BACK_OFF)


def windows_in(event: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[Window, ...]:
    """Return windows from the stream, else from headers. A window without an end is ignored."""
    stated = event.get("unifiedWindows")
    windows: dict[str, Any] = dict(stated) if isinstance(stated, Mapping) else {}
    for short, name in WINDOW_NAMES.items():
        windows.setdefault(
            name,
            {
                "utilization": headers.get(f"{UNIFIED}{short}-utilization"),
                "resetsAt": headers.get(f"{UNIFIED}{short}-reset"),
            },
        )
    found = (_window(str(name)[:50], facts) for name, facts in windows.items())
    return tuple(window for window in found if window is not None)


def _window(name: str, facts: Any) -> Window | None:
    if not isinstance(facts, Mapping):
        return None
    share, resets_at = _number(facts.get("utilization")), epoch(facts.get("resetsAt"))
    if share is None or resets_at is None or share < 0:
        return None
    return Window(name=name, share=min(share, 1.0), resets_at=resets_at)


def _stated(signs: LimitSigns, now: datetime) -> Iterator[tuple[str, datetime | None]]:
    """Yield possible ends of the limit, the most reliable first."""
    event, headers = signs.event, signs.headers
    if event.get("status") == "rejected":
        yield _name(event.get("rateLimitType")), epoch(event.get("resetsAt"))
    if said := WITH_EPOCH.search(signs.text):
        yield "usage", epoch(said[1])
    if said := WITH_CLOCK.search(signs.text):
        extra = said["what"].lower() != "limit"
        yield "extra_usage" if extra else _window_named(signs.text), _by_clock(said, now)
    if signs.status == TOO_MANY_REQUESTS:
        claim = _name(headers.get(f"{UNIFIED}representative-claim"))
        yield claim, epoch(headers.get(f"{UNIFIED}reset"))
        yield BY_KEY, after(signs.retry_after, now)


def _name(value: Any) -> str:
    return value[:50] if isinstance(value, str) and value else "usage"


def _window_named(text: str) -> str:
    return "seven_day" if "weekly" in text.lower() else "five_hour"


def after(retry_after: str, now: datetime) -> datetime | None:
    """Parse `Retry-After`: seconds or a date."""
    seconds = _number(retry_after)
    if seconds is not None:
        return now + min(timedelta(seconds=max(0.0, min(seconds, 1e9))), LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(retry_after)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def epoch(value: Any) -> datetime | None:
    """Parse seconds or milliseconds since 1970."""
    seconds = _number(value)
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds / 1000 if seconds > MILLISECONDS else seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _by_clock(said: re.Match[str], now: datetime) -> datetime | None:
    """Return the next such time in that zone, also where clocks skip or repeat it."""
    try:
        zone = ZoneInfo(said["zone"].strip())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    hour, minute = int(said["hour"]), int(said["minute"] or 0)
    if not 1 <= hour <= 12 or minute > 59:
        return None
    hour = hour % 12 + (12 if said["half"].lower() == "pm" else 0)
    moments = [
        moment
        for day in _days(said, now.astimezone(zone))
        for moment in _moments(day.replace(hour=hour, minute=minute, second=0, microsecond=0))
    ]
    return min((moment for moment in moments if moment > now - JUST_PASSED), default=None)


def _moments(local: datetime) -> list[datetime]:
    """Return two moments if the local time occurs twice."""
    first, second = (local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    return [first, second] if second > first else [first]


def _days(said: re.Match[str], today: datetime) -> list[datetime]:
    """Return possible days: the named one in this year and the next, or those around today."""
    noon = today.replace(hour=12, fold=0)
    if said["month"] is None:
        return [noon + timedelta(days=ahead) for ahead in (-1, 0, 1, 2)]
    if said["month"].lower() not in MONTHS:
        return []
    month, days = MONTHS.index(said["month"].lower()) + 1, []
    for year in (today.year, today.year + 1):
        try:
            days.append(noon.replace(year=year, month=month, day=int(said["day"])))
        except ValueError:
            continue
    return days
