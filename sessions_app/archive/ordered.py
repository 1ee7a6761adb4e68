"""The archived conversation in the order in which it was held (`conversation_order`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asgiref.sync import async_to_sync

from sessions_app.archive.transcript_chunks import Entry
from sessions_app.archive.transcript_store import load_entries
from sessions_app.models import Transcript
from sessions_app.reading.target_addresses import learn_addresses

if TYPE_CHECKING:
    from claude_agent_sdk import SessionMessage
    from claude_agent_sdk.types import SessionKey


def load_readable(project: str, session_id: str, subagent: Transcript | None = None) -> list[Entry]:
    """Raises TranscriptDamaged rather than give a conversation with a hole in it.

    What is read here was never masked, and will be shown: so all that must be masked is learned.
    """
    learn_addresses()
    key: SessionKey = {"project_key": project, "session_id": session_id}
    if subagent is None:
        return _readable(load_entries(key))
    key["subpath"] = subagent.subpath
    entries = _readable(load_entries(key))
    # The SDK's reader for subagents follows one line of parents and would lose parallel calls; the
    # other one passes over side chains, which in a file of its own this is not.
    return [{**entry, "isSidechain": False} for entry in entries]


def messages_in_order(session_id: str, entries: list[Entry]) -> list[SessionMessage]:
    # Only here: with it comes the SDK, 35 MB that a server which shows no transcript can save.
    from sessions_app.archive.conversation_order import in_order

    return async_to_sync(in_order)(session_id, entries)


def _readable(entries: list[Entry] | None) -> list[Entry]:
    """The reader takes these for strings; in a transcript that somebody mended by hand, they may
    be anything."""
    strings = ("type", "uuid", "parentUuid")
    return [
        entry
        for entry in entries or []
        if all(isinstance(entry.get(name), str | None) for name in strings)
    ]
