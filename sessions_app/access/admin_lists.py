"""Lists of the admin that take as long for a million rows as for a thousand.

Nothing is counted to its end, no filter asks a whole table for its values, a date is looked up
among the numbers, and words are found in their index.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import Max, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property

from sessions_app.models import Session
from sessions_app.models.numbers import LARGEST_NUMBER, first_number_from
from sessions_app.models.search import (
    SHORTEST_WORDS,
    is_too_short,
    newest_matches,
)

MOST_COUNTED = 5_000
LATELY = 2_000
LATEST = 20_000
MATCHES_LISTED = MATCHES_LOOKED_AT = 500


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts to a limit. What lies behind it is reached by a filter, a date or a search."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:MOST_COUNTED].count())

    @property
    def is_cut(self) -> bool:
        return self.count >= MOST_COUNTED


def lately_seen(field: str, *, indexed: bool = True) -> type[admin.SimpleListFilter]:
    """A filter by a field without fixed choices, which offers what the newest rows hold. Without an
    index it also looks at the latest alone."""

    class LatelySeen(admin.SimpleListFilter):
        title = field.replace("_", " ") + ("" if indexed else f", of the latest {LATEST:,}")
        parameter_name = f"{field}__exact"

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            newest = model_admin.model._default_manager.order_by("-pk")[:LATELY]
            values = set(newest.values_list(field, flat=True)) | {self.value() or ""}
            return [(value, value) for value in sorted(values) if value]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            if not self.value():
                return queryset
            looked_at = queryset if indexed else among_latest(queryset)
            return looked_at.filter(**{field: self.value()})

        def has_output(self) -> bool:
            return True

    return LatelySeen


def among_latest(queryset: QuerySet[Any]) -> QuerySet[Any]:
    """For a question that no index answers: only so many rows are looked at."""
    newest = queryset.model._default_manager.aggregate(newest=Max("pk"))["newest"] or 0
    return queryset.filter(pk__gt=newest - LATEST)


class CreatedOn(admin.SimpleListFilter):
    """By year, then month, then day. Rows are numbered in the order in which they are made, so a
    day is a stretch of numbers, and the list stays in its order."""

    title = "date"
    parameter_name = "on"
    field = "created_at"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        times = model_admin.model._default_manager.order_by("pk").values_list(self.field, flat=True)
        today = timezone.localdate()
        oldest = times.first()
        first = timezone.localdate(oldest) if oldest else today
        chosen = stretch_of(self.value() or "")
        parts = [(f"{today:%Y-%m-%d}", "Today"), ("7", "Past 7 days"), ("30", "Past 30 days")]
        parts += [(f"{year}", f"{year}") for year in range(today.year, first.year - 1, -1)]
        return parts + [(part, part) for part in _inside(self.value() or "") if chosen]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        stretch = stretch_of(self.value() or "")
        if stretch is None:
            return queryset
        first, end = (first_number_from(queryset.model, self.field, at) for at in stretch)
        return queryset.filter(pk__gte=first, pk__lt=end)

    def has_output(self) -> bool:
        return True


class FirstSeenOn(CreatedOn):
    field = "first_seen_at"


class AskedOn(CreatedOn):
    field = "asked_at"


def stretch_of(text: str) -> tuple[datetime, datetime] | None:
    """The time that `2026`, `2026-11`, `2026-11-17` or a number of days stands for."""
    if text in {"7", "30"}:
        today = timezone.localdate()
        return _midnight(today - timedelta(days=int(text) - 1)), _midnight(today + timedelta(1))
    try:
        parts = [int(part) for part in text.split("-")]
        first = date(*[*parts, 1, 1][:3])
    except (ValueError, OverflowError):
        return None
    if not 1 <= len(parts) <= 3 or first.year > 9000:
        return None
    return _midnight(first), _midnight(_after(first, len(parts)))


def _after(first: date, parts: int) -> date:
    if parts == 3:
        return first + timedelta(days=1)
    if parts == 2:
        return (first + timedelta(days=31)).replace(day=1)
    return first.replace(year=first.year + 1)


def _inside(text: str) -> Iterator[str]:
    """The months of a year, or the days of a month; a day has its month's beside it."""
    parts = text.split("-")
    stretch = stretch_of("-".join(parts[:2]))
    if stretch is None or text in {"7", "30"}:
        return
    if len(parts) == 1:
        yield from (f"{parts[0]}-{month:02d}" for month in range(1, 13))
        return
    day, end = (timezone.localdate(moment) for moment in stretch)
    yield f"{day:%Y-%m}"
    while day < end:
        yield f"{day:%Y-%m-%d}"
        day += timedelta(days=1)


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))


class FoundByWords:
    """For an admin whose rows are found by the words of sessions."""

    matched_by = "pk"
    """The field that the number of a session is compared with."""

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        words = search_term.strip()
        if not words:
            return queryset, False
        if is_too_short(words):
            messages.warning(request, f"To search takes {SHORTEST_WORDS} letters or more.")
            return queryset.none(), False
        numbers, down_to = newest_matches(
            Session.objects.all(),
            words,
            below=LARGEST_NUMBER,
            wanted=MATCHES_LISTED,
            looked_at=MATCHES_LOOKED_AT,
        )
        if down_to:
            text = f"Only the newest {MATCHES_LISTED:,} matches are listed: add to the words."
            messages.info(request, text)
        return queryset.filter(**{f"{self.matched_by}__in": numbers}), self.matched_by != "pk"
