"""The output of a whole chain, tier after tier: a stretch of it, and how far that reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from django.db.models import Q

from sessions_app.models import Cycle, Session, SessionEvent
from sessions_app.pages.live_position import ALL, Position
from sessions_app.pages.log_entries import LogEntry, log_entries

EVENTS_SHOWN = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class TierLog:
    session: Session
    entries: tuple[LogEntry, ...]
    is_begun_before: bool
    """Its first lines are in an earlier stretch, and so is its heading."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainLog:
    tiers: tuple[TierLog, ...]
    position: Position
    """All that a viewer of this page has seen."""
    earlier: str
    """Where the stretch before ends; empty when there is none."""


def load_chain_log(
    cycle: Cycle, sessions: Iterable[Session], before: Position | None = None
) -> ChainLog:
    """One query. One more event is read than shown, to know whether there are earlier ones."""
    known = {session.pk: session for session in sessions}
    found = SessionEvent.objects.filter(session__in=known)
    if before is not None and before.seen:
        session, number = max(before.seen.items())
        found = found.filter(Q(session__lt=session) | Q(session=session, sequence__lt=number))
    newest_first = list(found.order_by("-session_id", "-sequence")[: EVENTS_SHOWN + 1])
    shown = newest_first[:EVENTS_SHOWN][::-1]
    left = newest_first[EVENTS_SHOWN:]
    return ChainLog(
        tiers=_by_tier(shown, known, left[0].session_id if left else 0),
        position=_reached(shown, known),
        earlier=f"{shown[0].session_id}:{shown[0].sequence}" if left else "",
    )


def _by_tier(
    events: Iterable[SessionEvent], sessions: Mapping[int, Session], continues: int
) -> tuple[TierLog, ...]:
    grouped = groupby(log_entries(events, in_chain=True), key=lambda entry: entry.event.session_id)
    return tuple(
        TierLog(
            session=sessions[number], entries=tuple(entries), is_begun_before=number == continues
        )
        for number, entries in grouped
    )


def _reached(events: list[SessionEvent], sessions: Iterable[int]) -> Position:
    """Sessions before the first one shown are left out as a whole, and have nothing new to say."""
    first = events[0].session_id if events else 0
    passed = {number: ALL for number in sessions if number < first}
    return Position({**passed, **{event.session_id: event.sequence for event in events}})
