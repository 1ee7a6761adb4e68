"""A page of a list where no index answers all that was asked: so many rows are looked at, newest
first, and the next page looks further. It takes as long at any size."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, time, timedelta
from typing import TypeVar

from django.db.models import Max, Model, QuerySet
from django.utils import timezone

from sessions_app.models.numbers import LARGEST_NUMBER, first_number_from
from sessions_app.pages.keyset import KeysetPage, Position, page_of

Row = TypeVar("Row", bound=Model)
DOWN_TO = "Looked down to #{}: older ones are on the next page."
LAST_DAY = date(9000, 1, 1)
"""What comes after it is a slip of the finger."""


def look_down(
    rows: QuerySet[Row], position: Position, size: int, *, most: int, first: int = 1
) -> tuple[KeysetPage[Row], str]:
    """The page, and why it may hold less than somebody expects. Below `first` there is nothing."""
    newest = rows.model._default_manager.aggregate(newest=Max("pk"))["newest"] or 0
    begin = newest if position.before is None else min(position.before, newest)
    down_to = begin - most
    stretch = rows.filter(pk__gte=max(down_to, first))
    page = page_of(stretch, Position(before=position.before), size)
    if page.older is None and down_to > first:
        return replace(page, older=down_to), DOWN_TO.format(down_to)
    return page, ""


def numbers_between(
    model: type[Model],
    field: str,
    since: date | None,
    until: date | None,
    slack: timedelta = timedelta(0),
) -> tuple[int, int]:
    """The stretch of numbers that a stretch of days has: rows are numbered as they are made. The
    slack is how much later than its time a row may have been written."""
    first = first_number_from(model, field, _midnight(since) - slack) if since else 1
    end = _midnight(min(until, LAST_DAY) + timedelta(days=1)) + slack if until else None
    return first, first_number_from(model, field, end) if end else LARGEST_NUMBER


def in_days(field: str, since: date | None, until: date | None) -> dict[str, datetime]:
    """The same days as a filter of the time itself."""
    after = {f"{field}__gte": _midnight(since)} if since else {}
    end = _midnight(min(until, LAST_DAY) + timedelta(days=1)) if until else None
    return {**after, f"{field}__lt": end} if end else after


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(min(day, LAST_DAY), time.min))
