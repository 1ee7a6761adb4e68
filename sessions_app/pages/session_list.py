"""One page of the list of sessions: filtered along indexes, or searched by words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sessions_app.models import Session
from sessions_app.models.numbers import LARGEST_NUMBER
from sessions_app.models.search import SHORTEST_WORDS, is_too_short, newest_matches
from sessions_app.pages.filters import SessionFilter
from sessions_app.pages.keyset import KeysetPage, Position, of_rows, page_of
from sessions_app.pages.looking_down import DOWN_TO, look_down

MATCHES_LOOKED_AT = 5_000
SESSIONS_LOOKED_AT = 30_000
"""Held against the other filters for one page. Then the next page looks further."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionList:
    page: KeysetPage[Session]
    is_filtered: bool
    has_no_way_back: bool = False
    """Page by page: only to the newest."""
    remark: str = ""
    """Why less is shown than somebody may expect."""


def load_sessions(form: SessionFilter, position: Position, size: int) -> SessionList:
    if form.words:
        return _searched(form, position, size)
    if form.combined > 1:
        return _combined(form, position, size)
    page = page_of(form.apply(Session.objects.for_list()), position, size)
    return SessionList(page=page, is_filtered=bool(form.chosen))


def _combined(form: SessionFilter, position: Position, size: int) -> SessionList:
    """Each filter has an index, several together have none: what one of them finds is held against
    the others, so many at a time."""
    rows = form.apply(Session.objects.for_list())
    page, remark = look_down(rows, position, size, most=SESSIONS_LOOKED_AT)
    return SessionList(page=page, is_filtered=True, has_no_way_back=True, remark=remark)


def _searched(form: SessionFilter, position: Position, size: int) -> SessionList:
    if is_too_short(form.words):
        page: KeysetPage[Session] = of_rows([], Position(), size)
        remark = f"To search takes {SHORTEST_WORDS} letters or more, or the number of a session."
        return SessionList(page=page, is_filtered=True, has_no_way_back=True, remark=remark)
    numbers, down_to = newest_matches(
        form.apply(Session.objects.all()),
        form.words,
        below=LARGEST_NUMBER if position.before is None else position.before,
        wanted=size + 1,
        looked_at=MATCHES_LOOKED_AT,
    )
    rows = Session.objects.for_list().filter(pk__in=numbers).order_by("-pk")
    page = of_rows(list(rows), position, size)
    if page.older is None and down_to:
        page, remark = replace(page, older=down_to), DOWN_TO.format(down_to)
        return SessionList(page=page, is_filtered=True, has_no_way_back=True, remark=remark)
    return SessionList(page=page, is_filtered=True, has_no_way_back=True)
