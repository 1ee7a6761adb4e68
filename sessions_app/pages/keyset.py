"""A page of a long list, by the number of the row that it begins after: nothing is counted, and the
last page takes as long as the first. Rows that come or go meanwhile move no other row to another
page, so none is shown twice or passed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet
from django.http import QueryDict

Row = TypeVar("Row", bound=Model)
PARAMETERS = ("before", "after")


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """Where a page begins. Without both it is the first."""

    before: int | None = None
    after: int | None = None
    """Rows that are newer than this one: the way back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeysetPage(Generic[Row]):
    rows: tuple[Row, ...]
    older: int | None
    """The `before` of the page that follows."""
    newer: int | None
    """The `after` of the page in front of it."""
    is_first: bool

    @property
    def is_all(self) -> bool:
        return self.is_first and self.older is None


def position_in(parameters: QueryDict) -> Position:
    """What makes no sense counts as not given."""
    return Position(**{name: _number(parameters.get(name, "")) for name in PARAMETERS})


def page_of(rows: QuerySet[Row], position: Position, size: int) -> KeysetPage[Row]:
    """Newest first, by primary key."""
    if position.after is not None:
        newer = list(rows.filter(pk__gt=position.after).order_by("pk")[: size + 1])
        if len(newer) > size:
            shown = newer[:size][::-1]
            return KeysetPage(
                rows=tuple(shown), older=shown[-1].pk, newer=shown[0].pk, is_first=False
            )
        position = Position()
    asked = rows if position.before is None else rows.filter(pk__lt=position.before)
    return of_rows(list(asked.order_by("-pk")[: size + 1]), position, size)


def of_rows(found: Sequence[Row], position: Position, size: int) -> KeysetPage[Row]:
    """From the rows themselves: one more than is shown, if there is one."""
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
