"""When a watch runs, in words and as the next times. Pure.

A cron expression is put into words only where the words surely say the same; else it is shown as it
is, because a schedule that is nearly understood is worse than one that is not.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from math import ceil

from croniter import croniter

MINUTES_OF_DAY = 24 * 60
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
WORKDAYS, WEEKEND = ("1-5", "mon-fri"), ("0,6", "6,0", "6,7", "sat,sun", "sun,sat")
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
MOST_TIMES = 4
FURTHEST = 4
"""Years in which a cron expression is looked for: 30 February never comes."""


def interval_words(minutes: int) -> str:
    if minutes % MINUTES_OF_DAY == 0:
        return _every(minutes // MINUTES_OF_DAY, "day")
    if minutes % 60 == 0:
        return _every(minutes // 60, "hour")
    return _every(minutes, "minute")


def cron_words(expression: str) -> str:
    """In words, or as `cron …` where it is not one of the usual forms."""
    return _usual_form(expression) or f"cron {expression.strip()}"


def next_times(
    *, cron: str, interval_minutes: int, due: datetime, after: datetime, count: int = 3
) -> tuple[datetime, ...]:
    """The next times in the zone of `after`: by the cron expression, or from the time that is due
    on, one interval after another."""
    if cron:
        return _cron_times(cron, after, count)
    step = timedelta(minutes=interval_minutes)
    first = due + max(0, ceil((after - due) / step)) * step
    return tuple((first + number * step).astimezone(after.tzinfo) for number in range(count))


def _cron_times(cron: str, after: datetime, count: int) -> tuple[datetime, ...]:
    try:
        # A moment earlier, so that a time which is due now counts.
        times = croniter(cron, after - timedelta(seconds=1), max_years_between_matches=FURTHEST)
        return tuple(times.get_next(datetime) for _number in range(count))
    except (ValueError, KeyError, OverflowError):
        return ()


def _usual_form(expression: str) -> str:
    fields = NICKNAMES.get(expression.strip().lower(), expression.lower()).split()
    if len(fields) != 5:
        return ""
    minute, hour, day, month, weekday = fields
    if month != "*":
        return ""
    often = _often(minute, hour) if (day, weekday) == ("*", "*") else ""
    at, on = _at(minute, hour), _on(day, weekday)
    return often or (f"{at} {on}" if at and on else "")


def _often(minute: str, hour: str) -> str:
    """`*/15 * * * *` and `20 * * * *`; a step that does not divide the hour starts anew in each."""
    if hour == "*":
        if minute == "*":
            return "every minute"
        if step := _step(minute, 60):
            return _every(step, "minute")
        if _is_number(minute, 59):
            return "every hour" if int(minute) == 0 else f"every hour at minute {int(minute)}"
    if _is_number(minute, 59) and (step := _step(hour, 24)):
        past = f" at minute {int(minute)}" if int(minute) else ""
        return f"{_every(step, 'hour')}{past}"
    return ""


def _at(minute: str, hour: str) -> str:
    hours = hour.split(",")
    if not _is_number(minute, 59) or len(hours) > MOST_TIMES:
        return ""
    if not all(_is_number(one, 23) for one in hours):
        return ""
    times = [f"{number:02}:{int(minute):02}" for number in sorted({int(one) for one in hours})]
    return f"at {_listed(times)}"


def _on(day: str, weekday: str) -> str:
    if (day, weekday) == ("*", "*"):
        return "every day"
    if day == "*":
        return _on_weekdays(weekday)
    if weekday == "*" and _is_number(day, 31) and int(day) > 0:
        # Where a month is shorter it does not run in that month: these words promise no more.
        return f"on day {int(day)} of the month"
    return ""


def _on_weekdays(weekday: str) -> str:
    if weekday in WORKDAYS:
        return "from Monday to Friday"
    if weekday in WEEKEND:
        return "on Saturday and Sunday"
    numbers = [_weekday(one) for one in weekday.split(",")]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return ""
    ordered = sorted({number % 7 for number in known}, key=lambda number: (number - 1) % 7)
    return f"every {_listed([DAYS[number] for number in ordered])}"


def _weekday(text: str) -> int | None:
    if text in SHORT_DAYS:
        return SHORT_DAYS.index(text)
    return int(text) if _is_number(text, 7) else None


def _step(field: str, whole: int) -> int:
    """Of `*/15`; 0 where it is none, or where the last step would be shorter than the others."""
    found = re.fullmatch(r"\*/(\d{1,2})", field)
    step = int(found[1]) if found else 0
    return step if step and whole % step == 0 and step < whole else 0


def _is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 2 and int(text) <= most


def _every(count: int, unit: str) -> str:
    return f"every {unit}" if count == 1 else f"every {count} {unit}s"


def _listed(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
