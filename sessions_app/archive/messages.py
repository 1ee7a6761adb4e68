"""The messages of a session as they are stored, complete but for secrets, which are masked.

From the archived transcript, which holds the whole conversation; where none is archived (the run
goes on, was not kept, or its copy is damaged), from the run's own stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sessions_app.archive.ordered import load_readable, messages_in_order
from sessions_app.archive.transcript_chunks import TranscriptDamaged
from sessions_app.archive.transcript_store import latest_project
from sessions_app.models import Session, SessionEvent
from sessions_app.reading.masking import masked_data

SPOKEN = ("user", "assistant")


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredMessage:
    number: int
    """From 1, in the order of the conversation."""
    source: str
    """`transcript` or `stream`."""
    type: str
    uuid: str | None
    at: str | None
    message: Any


def messages_of(session: Session) -> list[StoredMessage]:
    return _from_transcript(session) or _from_stream(session)


def _from_transcript(session: Session) -> list[StoredMessage]:
    project = latest_project(session.session_id) if session.session_id else None
    if project is None:
        return []
    try:
        entries = load_readable(project, session.session_id)
    except TranscriptDamaged:
        return []
    said_at = {entry["uuid"]: entry.get("timestamp") for entry in entries if "uuid" in entry}
    return [
        StoredMessage(
            number=number,
            source="transcript",
            type=message.type,
            uuid=message.uuid,
            at=said_at.get(message.uuid),
            message=masked_data(message.message),
        )
        for number, message in enumerate(messages_in_order(session.session_id, entries), start=1)
    ]


def _from_stream(session: Session) -> list[StoredMessage]:
    events = session.events.filter(source=SessionEvent.Source.STREAM, kind__in=SPOKEN)
    return [
        StoredMessage(
            number=number,
            source="stream",
            type=event.kind,
            uuid=event.payload.get("uuid"),
            at=event.created_at.isoformat(),
            message=event.payload.get("message"),
        )
        for number, event in enumerate(events.order_by("sequence"), start=1)
    ]
