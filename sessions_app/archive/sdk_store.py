"""The archive as the SDK's `SessionStore`, so that the SDK's own readers work on it."""

from __future__ import annotations

from typing import cast

from asgiref.sync import sync_to_async
from claude_agent_sdk.types import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

from sessions_app.archive import transcript_store as store
from sessions_app.archive.transcript_chunks import Entry


class OrmSessionStore(SessionStore):
    """What any tool built on the SDK needs to read the archive; our own pages ask it directly."""

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await sync_to_async(store.append_entries)(key, cast(list[Entry], entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        entries = await sync_to_async(store.load_entries)(key)
        return cast(list[SessionStoreEntry] | None, entries)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return await sync_to_async(store.listed)(project_key)

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        return await sync_to_async(store.summaries)(project_key)

    async def delete(self, key: SessionKey) -> None:
        await sync_to_async(store.delete_transcript)(key)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        return await sync_to_async(store.subkeys)(key)
