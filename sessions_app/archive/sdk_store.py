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
    """The SDK's readers derive the project from a directory of this host. A transcript that came
    from another one, where a link led elsewhere, is read by naming its own project here."""

    def __init__(self, project_key: str = "") -> None:
        self._project_key = project_key

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        sent = cast(list[Entry], entries)
        await sync_to_async(store.append_entries)(self._own(key), sent)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        entries = await sync_to_async(store.load_entries)(self._own(key))
        return cast(list[SessionStoreEntry] | None, entries)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        return await sync_to_async(store.listed)(self._project_key or project_key)

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        return await sync_to_async(store.summaries)(self._project_key or project_key)

    async def delete(self, key: SessionKey) -> None:
        await sync_to_async(store.delete_transcript)(self._own(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        return await sync_to_async(store.subkeys)(self._project_key or key["project_key"], key)

    def _own(self, key: SessionKey) -> SessionKey:
        own: SessionKey = {**key}
        if self._project_key:
            own["project_key"] = self._project_key
        return own
