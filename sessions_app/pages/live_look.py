"""One look at the events of a session, or of all sessions of a cycle, rendered. Protocol:

1. Read the status first and the events after it. The other way round, an event written just
   before the end could be missed.
2. Each event is one message whose id says how far the viewer has come with it; a browser that lost
   the connection says the last id it saw, and continues from there.
3. When the status read in step 1 is final, and has been for a moment, it is done. The moment is
   for the last words of the supervisor, which are written after the end that they are about.

In a cycle each session is announced by a heading before its first event, so that tiers unfold on
one page, and the stream goes on with the next tier's events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Q
from django.template.loader import render_to_string
from django.utils import timezone

from sessions_app.models import Cycle, Session, SessionEvent
from sessions_app.pages.live_position import HEADING, NOTHING, Position, read_position
from sessions_app.pages.log_entries import LogEntry, log_entries
from sessions_app.reading.plain_text import clean

EVENTS_PER_LOOK = 200
LAST_WORDS = timedelta(seconds=1)
LONGEST_NUMBER = 10
HEADING_FIELDS = ("tier", "purpose", "model", "status", "finished_at", "cycle_id")


class Message(NamedTuple):
    """One line, rendered once for all its viewers. Its id is each viewer's own position."""

    session: int
    number: int
    data: str


@dataclass(frozen=True, slots=True)
class Look:
    messages: tuple[Message, ...]
    last: Position
    """Up to the last events looked at: some have nothing to show."""
    done: bool
    place: int = 0
    """How many messages of its feed a viewer has had with this look."""


class Subject(NamedTuple):
    """What is watched: one session, or a whole cycle."""

    pk: int
    is_cycle: bool = False

    def position_in(self, text: str | None) -> Position | None:
        """What a browser says that it has seen; None where it says nothing that makes sense."""
        if self.is_cycle:
            position = read_position(text)
            return position if position.seen else None
        is_number = text is not None and text.isascii() and text.isdecimal()
        if text is None or not is_number or len(text) >= LONGEST_NUMBER:
            return None
        return Position({self.pk: int(text)})

    def mark(self, position: Position) -> str:
        return str(position if self.is_cycle else max(position.of(self.pk), HEADING))


def look_at(subject: Subject, after: Position) -> Look:
    sessions, ended = _standing_of(subject)
    events = _events_after(sessions, after)
    messages = tuple(_messages(subject, sessions, events, after))
    ends = {event.session_id: event.sequence for event in events}
    return Look(
        messages=messages,
        last=after.joined(Position(ends)),
        done=ended and len(events) < EVENTS_PER_LOOK,
    )


def _standing_of(subject: Subject) -> tuple[dict[int, Session], bool]:
    """The sessions to look at, and whether nothing more is to be expected of them."""
    rows = Session.objects.only(*HEADING_FIELDS)
    if not subject.is_cycle:
        sessions = rows.filter(pk=subject.pk).in_bulk()
        return sessions, all(_is_over(s.is_open, s.finished_at) for s in sessions.values())
    cycle = Cycle.objects.filter(pk=subject.pk).only("state", "finished_at").first()
    over = cycle is None or _is_over(cycle.is_active, cycle.finished_at)
    return {session.pk: session for session in rows.filter(cycle=subject.pk).order_by("pk")}, over


def _is_over(is_open: bool, finished_at: datetime | None) -> bool:
    if is_open:
        return False
    return finished_at is None or timezone.now() - finished_at >= LAST_WORDS


def _events_after(sessions: dict[int, Session], after: Position) -> list[SessionEvent]:
    unseen = Q()
    for session in sessions:
        unseen |= Q(session=session, sequence__gt=after.of(session))
    if not sessions:
        return []
    found = SessionEvent.objects.filter(unseen).order_by("session_id", "sequence")
    return list(found[:EVENTS_PER_LOOK])


def _messages(
    subject: Subject,
    sessions: dict[int, Session],
    events: Sequence[SessionEvent],
    after: Position,
) -> Iterator[Message]:
    entries = {entry.event.pk: entry for entry in log_entries(events, in_chain=subject.is_cycle)}
    announced = {session for session in sessions if after.of(session) != NOTHING}
    for event in events:
        number = event.session_id
        if subject.is_cycle and number not in announced:
            announced.add(number)
            yield Message(number, HEADING, data_lines(_heading(sessions[number])))
        if entry := entries.get(event.pk):
            yield Message(number, event.sequence, data_lines(_rendered(entry)))


def _heading(session: Session) -> str:
    return render_to_string("sessions_app/_log_heading.html", {"session": session})


def _rendered(entry: LogEntry) -> str:
    return render_to_string("sessions_app/_log_entry.html", {"entry": entry})


def data_lines(text: str) -> str:
    """An empty message still needs its data line, or browsers drop it."""
    return "".join(f"data: {line}\n" for line in clean(text).strip().split("\n"))


def sse_message(name: str, data: str, mark: str) -> str:
    return f"event: {name}\nid: {mark}\n{data}\n"
