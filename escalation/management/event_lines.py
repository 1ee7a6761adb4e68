"""Events of a session in a terminal, and as data for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils import timezone

from sessions_app.models import SessionEvent
from sessions_app.reading.event_text import describe_event, summary_line


def event_lines(event: SessionEvent) -> Iterator[str]:
    when = timezone.localtime(event.created_at).strftime("%H:%M:%S")
    whose = f"#{event.session_id} {event.session.cycle.subject}"
    for line in describe_event(event.source, event.kind, event.payload):
        yield f"{when} {whose}  {summary_line(line)}"


def event_as_data(event: SessionEvent) -> dict[str, Any]:
    return {
        "session": event.session_id,
        "cycle": event.session.cycle_id,
        "sequence": event.sequence,
        "at": event.created_at,
        "source": event.source,
        "kind": event.kind,
        "payload": event.payload,
    }
