"""The messages of a transcript in the order in which they were said.

The SDK's reader follows the parent links and puts parallel tool calls back together. It begins at
the last compaction, because that is where the CLI's memory begins; a person wants the rest too, so
it is asked once for each stretch between two compactions.
"""

from __future__ import annotations

from typing import cast

from claude_agent_sdk import (
    InMemorySessionStore,
    SessionMessage,
    get_session_messages_from_store,
)
from claude_agent_sdk.types import SessionKey, SessionStoreEntry

from sessions_app.archive.transcript_chunks import Entry


class _Stretch(InMemorySessionStore):
    """The beginning of a transcript, for the SDK's reader to find the last message of."""

    def __init__(self, entries: list[Entry]) -> None:
        super().__init__()
        self._entries = entries

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        return cast(list[SessionStoreEntry], self._entries)


async def in_order(session_id: str, entries: list[Entry]) -> list[SessionMessage]:
    ends = [number for number, entry in enumerate(entries) if _is_compaction(entry)]
    messages: dict[str, SessionMessage] = {}
    for end in [*ends, len(entries)]:
        for message in await get_session_messages_from_store(_Stretch(entries[:end]), session_id):
            messages.setdefault(message.uuid, message)
    return list(messages.values())


def _is_compaction(entry: Entry) -> bool:
    return entry.get("type") == "system" and entry.get("subtype") == "compact_boundary"
