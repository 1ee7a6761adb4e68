"""One page of the list of cycles: filtered along indexes, or searched by words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Prefetch, QuerySet
from django.http import QueryDict

from sessions_app.models import Cycle, SearchText, Session
from sessions_app.models.numbers import LARGEST_NUMBER
from sessions_app.models.querysets import LONG_FIELDS
from sessions_app.models.search import LOOKED_AT as MATCHES_AT_ONCE
from sessions_app.models.search import SHORTEST_WORDS, is_too_short, matches, number_in
from sessions_app.pages.cycle_filter import DAYS, CycleFilter
from sessions_app.pages.filters import address_without_page
from sessions_app.pages.keyset import (
    KeysetPage,
    Position,
    of_rows,
    page_of,
    position_in,
)
from sessions_app.pages.looking_down import DOWN_TO, look_down, numbers_between
from sessions_app.reading.chain import Chain
from sessions_app.reading.found_words import FoundWords, found_words

PER_PAGE = 40
LOOKED_AT = 3_000
"""Cycles whose runs, changes or costs are asked for one page. Then the next page looks further."""
TOO_SHORT = f"To search takes {SHORTEST_WORDS} letters or more, or the number of a session."


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleRow:
    cycle: Cycle
    chain: Chain
    found: FoundWords | None = None
    """What was searched for, where it stands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleList:
    form: CycleFilter
    page: KeysetPage[Cycle]
    rows: tuple[CycleRow, ...]
    is_filtered: bool
    address: str
    has_no_way_back: bool = False
    remark: str = ""


def load_cycles(parameters: QueryDict) -> CycleList:
    form = CycleFilter(parameters, label_suffix="")
    position = position_in(parameters)
    page, remark = _searched(form, position) if form.words else _filtered(form, position)
    return CycleList(
        form=form,
        page=page,
        rows=tuple(_row(cycle, form.words) for cycle in page.rows),
        is_filtered=bool(form.chosen),
        address=address_without_page(parameters),
        has_no_way_back=bool(form.words) or not form.is_one_index,
        remark=remark,
    )


def _filtered(form: CycleFilter, position: Position) -> tuple[KeysetPage[Cycle], str]:
    """One bound on each side of the numbers, the narrower: SQLite takes the first of two, and goes
    through all that lies between them."""
    first, end = _numbers(form)
    rows = form.apply(_shown())
    before = min(position.before or end, end)
    begin = Position(before=None if before == LARGEST_NUMBER else before)
    if not form.is_one_index:
        return look_down(rows, begin, PER_PAGE, most=LOOKED_AT, first=first)
    rows = rows.filter(pk__gte=first) if first > 1 else rows
    if position.before is not None:
        return page_of(rows, begin, PER_PAGE), ""
    rows = rows.filter(pk__lt=end) if end < LARGEST_NUMBER else rows
    return page_of(rows, position, PER_PAGE), ""


def _searched(form: CycleFilter, position: Position) -> tuple[KeysetPage[Cycle], str]:
    """By the newest session of each that holds the words: `before` is the number of a session."""
    if is_too_short(form.words):
        return of_rows([], Position(), PER_PAGE), TOO_SHORT
    below = LARGEST_NUMBER if position.before is None else position.before
    numbers = next(matches(form.words, below=below), [])
    newest = _newest_match(form, numbers)
    for seen in _shown_before(newest, form.words, position.before):
        del newest[seen]
    wanted = sorted(newest, key=lambda cycle: -newest[cycle])[:PER_PAGE]
    rows = _shown().in_bulk(wanted)
    is_more = len(newest) > PER_PAGE
    older = newest[wanted[-1]] if is_more else _rest(numbers)
    page = KeysetPage(
        rows=tuple(rows[cycle] for cycle in wanted),
        older=older,
        newer=None,
        is_first=position.before is None,
    )
    return page, "" if is_more or older is None else DOWN_TO.format(older)


def _newest_match(form: CycleFilter, numbers: list[int]) -> dict[int, int]:
    """The cycles that these sessions are of, each with its newest one."""
    first, end = _numbers(form)
    found = form.apply(Cycle.objects.filter(pk__gte=first, pk__lt=end, sessions__in=numbers))
    pairs = found.order_by("sessions__pk").values_list("pk", "sessions__pk")
    return dict(pairs)


def _shown_before(cycles: Iterable[int], words: str, before: int | None) -> set[int]:
    """Those that stand on an earlier page already, by a newer session of theirs."""
    if before is None:
        return set()
    newer = SearchText.objects.filter(
        session__cycle__in=list(cycles), pk__gte=before, text__icontains=words
    )
    return set(newer.values_list("session__cycle", flat=True))


def _rest(numbers: list[int]) -> int | None:
    """Where to look on, if there may be more."""
    return numbers[-1] if len(numbers) == MATCHES_AT_ONCE else None


def _numbers(form: CycleFilter) -> tuple[int, int]:
    since, until = (form.chosen.get(name) for name in DAYS)
    return numbers_between(Cycle, "created_at", since, until)


def _shown() -> QuerySet[Cycle]:
    sessions = Session.objects.defer(*LONG_FIELDS).order_by("id")
    return Cycle.objects.select_related("watch", "requested_by").prefetch_related(
        Prefetch("sessions", queryset=sessions)
    )


def _row(cycle: Cycle, words: str) -> CycleRow:
    chain = Chain(sessions=tuple(cycle.sessions.all()))
    return CycleRow(cycle=cycle, chain=chain, found=_found(cycle, chain, words) if words else None)


def _found(cycle: Cycle, chain: Chain, words: str) -> FoundWords | None:
    texts = {
        "reason": cycle.outcome_reason,
        "watch": cycle.subject,
        "request": cycle.prompt,
    }
    for session in chain.sessions:
        name = f"session #{session.pk}"
        texts |= {
            f"{name}, decision": session.escalation_reason,
            f"{name}, error": session.error,
            f"{name}, request": session.request,
            f"{name}, conversation": session.session_id,
            f"{name}, directory": session.workdir,
        }
        if number_in(words) == session.pk:
            return FoundWords(where="session", before="", match=f"#{session.pk}", after="")
    return found_words(words, texts)
