"""Redacted messages of a session, in order.

They are read from the archived transcript or, if there is none (the session is running or
ephemeral, or the copy is damaged), from the stream of the session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import async_to_sync

from sessions_app.archive.transcripts import Entry, TranscriptDamaged, latest_project, load_entries
from sessions_app.models import Session, SessionEvent, Transcript
from sessions_app.models.session import SPOKEN
from sessions_app.redaction.encryption import learn_addresses
from sessions_app.redaction.redact import SecretOutputs, redacted_data

if TYPE_CHECKING:
    from claude_agent_sdk import SessionMessage
    from claude_agent_sdk.types import SessionKey, SessionStoreEntry


def load_readable(project: str, session_id: str, subagent: Transcript | None = None) -> list[Entry]:
    """Return the entries of an archived transcript, or of one subagent.

    Raise TranscriptDamaged if a part is missing. Outputs of commands that print secrets are
    redacted; the rest is redacted by the caller, for which the addresses of channels are loaded.
    """
    learn_addresses()
    key: SessionKey = {"project_key": project, "session_id": session_id}
    if subagent is None:
        return _readable(load_entries(key))
    key["subpath"] = subagent.subpath
    entries = _readable(load_entries(key))
    # The SDK's reader for subagents loses parallel calls, and the other one skips side chains.
    return [{**entry, "isSidechain": False} for entry in entries]


def messages_in_order(session_id: str, entries: list[Entry]) -> list[SessionMessage]:
    """Return the messages of a transcript in the order of the conversation.

    The SDK's reader follows the parent links and puts parallel tool calls back together. It begins
    at the last compaction, where the CLI's memory begins; the rest is wanted too, so it is called
    once for each part between two compactions.
    """
    # Imported here: the SDK takes 35 MB and half a second, which few processes need.
    from claude_agent_sdk import InMemorySessionStore, get_session_messages_from_store

    class Part(InMemorySessionStore):
        """The beginning of a transcript, as a store of the SDK."""

        def __init__(self, end: int) -> None:
            super().__init__()
            self._end = end

        async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
            return cast("list[SessionStoreEntry]", entries[: self._end])

    async def read() -> list[SessionMessage]:
        ends = [number for number, entry in enumerate(entries) if _is_compaction(entry)]
        messages: dict[str, SessionMessage] = {}
        for end in [*ends, len(entries)]:
            for message in await get_session_messages_from_store(Part(end), session_id):
                messages.setdefault(message.uuid, message)
        return list(messages.values())

    return async_to_sync(read)()


def _readable(entries: list[Entry] | None) -> list[Entry]:
    """Drop entries with fields of another type, as in a transcript that was edited by hand."""
    strings = ("type", "uuid", "parentUuid")
    outputs = SecretOutputs()
    return [
        outputs.redact(entry)
        for entry in entries or []
        if all(isinstance(entry.get(name), str | None) for name in strings)
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredMessage:
    number: int
    """Position in the conversation, from 1."""
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
            message=redacted_data(message.message),
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


def _is_compaction(entry: Entry) -> bool:
    return entry.get("type") == "system" and entry.get("subtype") == "compact_boundary"
