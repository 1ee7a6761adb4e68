"""Descriptions and next times of schedules. Pure functions.

A cron expression is described in words only if the description is known to be exact. Otherwise it
is displayed as it is.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil

from cron_descriptor import ExpressionDescriptor, Options
from croniter import croniter

MINUTES_OF_DAY = 24 * 60
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
VALUE = r"(?:\d\d?|[a-z]{3})"
RANGE = rf"{VALUE}-{VALUE}"
VALUES = rf"(?:{VALUE}(?:,{VALUE})*|{RANGE})"
# Only steps that divide the hour or the day: for */7, whose last step is shorter, the library says
# "every 7 minutes" too.
MINUTES = r"(?:\*|\*/(?:[1-6]|10|12|15|20|30))"
HOURS = r"\*(?:/(?:[123468]|12))?"
TIME = rf"(?:\d\d? (?:{HOURS}|{VALUES})|{MINUTES} (?:\*|{RANGE}))"
# Not a day of the month together with a weekday, because cron runs on either of them.
DATE = rf"(?:(?:\*|{VALUES}) (?:\*|{VALUES}) \*|\* (?:\*|{VALUES}) {VALUES})"
DESCRIBED_RIGHT = re.compile(f"{TIME} {DATE}", re.ASCII)
FURTHEST = 4
"""Years to search for a match, because 30 February has none."""


def interval_words(minutes: int) -> str:
    if minutes % MINUTES_OF_DAY == 0:
        return _every(minutes // MINUTES_OF_DAY, "day")
    if minutes % 60 == 0:
        return _every(minutes // 60, "hour")
    return _every(minutes, "minute")


def cron_words(expression: str) -> str:
    """Describe a cron expression, or return `cron …` if the description may be wrong."""
    return _described(expression) or f"cron {expression.strip()}"


def next_times(
    *, cron: str, interval_minutes: int, due: datetime, after: datetime, count: int = 3
) -> tuple[datetime, ...]:
    """Return the next times in the zone of `after`, by cron or by interval from `due`."""
    if cron:
        return _cron_times(cron, after, count)
    step = timedelta(minutes=interval_minutes)
    first = due + max(0, ceil((after - due) / step)) * step
    return tuple((first + number * step).astimezone(after.tzinfo) for number in range(count))


def _cron_times(cron: str, after: datetime, count: int) -> tuple[datetime, ...]:
    try:
        # One second earlier, so that a time that is due now counts.
        times = croniter(cron, after - timedelta(seconds=1), max_years_between_matches=FURTHEST)
        return tuple(times.get_next(datetime) for _number in range(count))
    except (ValueError, KeyError, OverflowError):
        return ()


@lru_cache(maxsize=512)
def _described(expression: str) -> str:
    """Return the library's description, or an empty string if croniter runs differently."""
    fields = NICKNAMES.get(expression.strip().lower(), expression.lower()).split()
    cron = " ".join(fields)
    if not DESCRIBED_RIGHT.fullmatch(cron) or not _means_what_it_names(cron):
        return ""
    # "at 03:00, every day", but "every 15 minutes" without "every hour, every day".
    is_at_fixed_times = not re.search(r"[*-]", " ".join(fields[:2]))
    options = Options(locale_code="en_US", use_24hour_time_format=True, verbose=is_at_fixed_times)
    words: str = ExpressionDescriptor(cron, options).get_description()
    return words[:1].lower() + words[1:]


def _means_what_it_names(cron: str) -> bool:
    """Reject invalid numbers, and ranges like 3-3 and 0-7 that croniter reads as every value."""
    try:
        meant = croniter.expand(cron)[0]
    except (ValueError, KeyError):
        return False
    pairs = zip(cron.split(), meant, strict=True)
    return all(field.startswith("*") or values != ["*"] for field, values in pairs)


def _every(count: int, unit: str) -> str:
    return f"every {unit}" if count == 1 else f"every {count} {unit}s"
