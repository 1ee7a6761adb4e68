"""Keyset pagination and shared filters of long lists.

A page starts after a primary key: nothing is counted, the last page is as fast as the first, and no
row is shown twice or skipped when rows are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from typing import Any, Generic, TypeVar

from django import forms
from django.db.models import Max, Model, QuerySet
from django.http import QueryDict
from django.utils import timezone

from sessions_app.models import Session, Watch
from sessions_app.models.search import LARGEST_NUMBER, first_number_from
from sessions_app.models.session import SessionQuerySet
from sessions_app.tiers import tier_choices

Row = TypeVar("Row", bound=Model)
PARAMETERS = ("before", "after")


@dataclass(frozen=True, kw_only=True, slots=True)
class PagePosition:
    """Start of a page; the first page has neither bound."""

    before: int | None = None
    after: int | None = None
    """Shows rows newer than this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeysetPage(Generic[Row]):
    rows: tuple[Row, ...]
    older: int | None
    """`before` of the next page."""
    newer: int | None
    """`after` of the previous page."""
    is_first: bool

    @property
    def is_all(self) -> bool:
        return self.is_first and self.older is None


def position_in(parameters: QueryDict) -> PagePosition:
    """Reads the position from a query string; invalid values are ignored."""
    return PagePosition(**{name: _number(parameters.get(name, "")) for name in PARAMETERS})


def page_of(rows: QuerySet[Row], position: PagePosition, size: int) -> KeysetPage[Row]:
    """Returns a page, newest first, by primary key."""
    if position.after is not None:
        newer = list(rows.filter(pk__gt=position.after).order_by("pk")[: size + 1])
        if len(newer) > size:
            shown = newer[:size][::-1]
            return KeysetPage(
                rows=tuple(shown), older=shown[-1].pk, newer=shown[0].pk, is_first=False
            )
        position = PagePosition()
    asked = rows if position.before is None else rows.filter(pk__lt=position.before)
    return of_rows(list(asked.order_by("-pk")[: size + 1]), position, size)


def of_rows(found: Sequence[Row], position: PagePosition, size: int) -> KeysetPage[Row]:
    """Builds a page from rows of which one more than shown was read."""
    shown = tuple(found[:size])
    is_first = position.before is None
    return KeysetPage(
        rows=shown,
        older=shown[-1].pk if len(found) > size else None,
        newer=shown[0].pk if shown and not is_first else None,
        is_first=is_first,
    )


def _number(text: Any) -> int | None:
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 19
    return int(text) if is_number else None


# Bounded scan: where no index answers all filters, a page examines a fixed number of rows, and
# the next page continues after them.

DOWN_TO = "Looked down to #{}: older ones are on the next page."
LAST_DAY = date(9000, 1, 1)
"""Later dates are typing errors."""


def look_down(
    rows: QuerySet[Row], position: PagePosition, size: int, *, most: int, first: int = 1
) -> tuple[KeysetPage[Row], str]:
    """Returns the page and a remark that says why it may be short; `first` is the lowest key."""
    newest = rows.model._default_manager.aggregate(newest=Max("pk"))["newest"] or 0
    begin = newest if position.before is None else min(position.before, newest)
    down_to = begin - most
    stretch = rows.filter(pk__gte=max(down_to, first))
    page = page_of(stretch, PagePosition(before=position.before), size)
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
    """Returns the range of primary keys that covers a range of days.

    `slack` is how much later than its time a row may be written.
    """
    first = first_number_from(model, field, _midnight(since) - slack) if since else 1
    end = _midnight(min(until, LAST_DAY) + timedelta(days=1)) + slack if until else None
    return first, first_number_from(model, field, end) if end else LARGEST_NUMBER


def in_days(field: str, since: date | None, until: date | None) -> dict[str, datetime]:
    """Returns the filter of the time column for a range of days."""
    after = {f"{field}__gte": _midnight(since)} if since else {}
    end = _midnight(min(until, LAST_DAY) + timedelta(days=1)) if until else None
    return {**after, f"{field}__lt": end} if end else after


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(min(day, LAST_DAY), time.min))


# Drills never mix with earnest: each list shows one or the other, drills only when asked for.

ONLY_DRILLS = "yes"


def shows_drills(parameters: QueryDict) -> bool:
    """Returns whether drills are asked for; `drills` is the name on the page of costs."""
    return ONLY_DRILLS in (parameters.get("drill"), parameters.get("drills"))


class DrillSwitch(forms.ChoiceField):
    """The switch of every list: without drills, or nothing but drills."""

    def __init__(self) -> None:
        choices = [("", "Without drills"), (ONLY_DRILLS, "Only drills")]
        super().__init__(label="Drills", required=False, choices=choices)


# Filters of the session list; invalid values are ignored.

LOOKUPS = {
    "tier": "tier",
    "status": "status",
    "watch": "watch",
    "continued_by": "continued_by",
    "purpose": "purpose",
}


class SessionFilter(forms.Form):
    q = forms.CharField(
        label="Search",
        required=False,
        max_length=200,
        widget=forms.TextInput(
            attrs={"type": "search", "placeholder": "#18, id, reason, error …", "size": 22}
        ),
    )
    tier = forms.TypedChoiceField(
        required=False, coerce=int, choices=lambda: [("", "All tiers"), *tier_choices()]
    )
    status = forms.ChoiceField(
        required=False, choices=[("", "Any status"), *Session.Status.choices]
    )
    watch = forms.ModelChoiceField(Watch.objects.all(), required=False, empty_label="All watches")
    continued_by = forms.ChoiceField(
        label="Continued by",
        required=False,
        choices=[("", "In any way"), *Session.ContinuedBy.choices],
    )
    purpose = forms.ChoiceField(
        required=False, choices=[("", "Any purpose"), *Session.Purpose.choices]
    )
    drill = DrillSwitch()

    @property
    def chosen(self) -> dict[str, Any]:
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    def apply(self, sessions: SessionQuerySet) -> SessionQuerySet:
        chosen = self.chosen
        found = sessions.filter(
            **{lookup: chosen[name] for name, lookup in LOOKUPS.items() if name in chosen}
        )
        return found.drills() if "drill" in chosen else found.real()

    @property
    def combined(self) -> int:
        """Returns the number of filters in use."""
        return sum(name in LOOKUPS for name in self.chosen)

    @property
    def words(self) -> str:
        """Returns the search words, which `apply` leaves to the search index."""
        return str(self.chosen.get("q", "")).strip()


def address_without_page(parameters: QueryDict) -> str:
    """Returns the filters as a query string for links to other pages."""
    kept = parameters.copy()
    for name in ("page", *PARAMETERS):
        kept.pop(name, None)
    for name in [name for name, value in kept.items() if not value]:
        kept.pop(name)
    return kept.urlencode()
