"""Events of a session as lines of a log: those that have something to show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sessions_app.models import SessionEvent
from sessions_app.reading.event_text import EventLine, describe_event


@dataclass(frozen=True, slots=True)
class LogEntry:
    event: SessionEvent
    lines: tuple[EventLine, ...]
    in_chain: bool = False
    """On a page with several sessions, whose numbers begin anew with each."""

    @property
    def anchor(self) -> str:
        session = f"{self.event.session_id}-" if self.in_chain else ""
        return f"event-{session}{self.event.sequence}"


def log_entries(events: Iterable[SessionEvent], *, in_chain: bool = False) -> list[LogEntry]:
    entries = [
        LogEntry(event, describe_event(event.source, event.kind, event.payload), in_chain)
        for event in events
    ]
    return [entry for entry in entries if entry.lines]
