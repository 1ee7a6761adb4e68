"""The CLI's transcripts in the database, for every host that shares it.

`sdk_store` puts them behind the SDK's own interface.

An entry with a uuid is kept once, whoever sends it again. Most other lines of a transcript (costs,
queue operations) have none and may rightly repeat: `append_missing` compares how often each is
there, so that the same growing file can be archived after every run.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from django.db import transaction
from django.db.models import OuterRef, QuerySet
from django.utils import timezone

from sessions_app.archive.transcript_chunks import (
    Entry,
    encode,
    next_number,
    read_chunks,
    remove_files,
    write_chunks,
)
from sessions_app.models import Transcript, TranscriptChunk
from sessions_app.reading.masking import masked
from sessions_app.reading.plain_text import clean

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

logger = logging.getLogger(__name__)

Filter = Callable[[Sequence[Entry], Sequence[Entry]], list[Entry]]
"""Which of the sent entries are to be added to those that are kept."""


def append_entries(key: SessionKey, entries: Sequence[Entry]) -> int:
    """Add what was sent, except uuids that are there. Gives the number of entries added."""
    return _append(key, entries, _with_new_uuid)


def append_missing(key: SessionKey, entries: Sequence[Entry]) -> int:
    """Add what the copy lacks of a whole transcript. Gives the number of entries added."""
    return _append(key, entries, missing_from)


def load_entries(key: SessionKey) -> list[Entry] | None:
    """Raise TranscriptDamaged rather than give a conversation with a hole in it."""
    transcript = _found(key).first()
    return None if transcript is None else list(read_chunks(transcript))


def copies_of(session_id: str | OuterRef) -> QuerySet[Transcript]:
    """The copies of a conversation that hold anything, from whatever host."""
    return Transcript.objects.filter(session_id=session_id, subpath="", chunks__isnull=False)


def latest_project(session_id: str) -> str | None:
    """The project under which a conversation was last archived, on whatever host that was."""
    found = copies_of(session_id).order_by("-updated_at")
    return found.values_list("project_key", flat=True).first()


def subtranscripts(project_key: str, session_id: str) -> QuerySet[Transcript]:
    rows = Transcript.objects.filter(project_key=project_key, session_id=session_id)
    return rows.exclude(subpath="").order_by("pk")


def delete_transcript(key: SessionKey, *, alone: bool = False) -> None:
    """A main transcript takes its subagents' with it, unless it is to go alone."""
    rows = _found(key)
    if not key.get("subpath") and not alone:
        rows = Transcript.objects.filter(
            project_key=key["project_key"], session_id=key["session_id"]
        )
    remove_transcripts(rows)


def remove_transcripts(rows: QuerySet[Transcript]) -> int:
    """With their files, once that is committed. Gives their number."""
    with transaction.atomic():
        chunks = TranscriptChunk.objects.filter(transcript__in=rows)
        files = list(chunks.exclude(stored_as="").values_list("stored_as", flat=True))
        _total, by_kind = rows.delete()
        transaction.on_commit(lambda: remove_files(files))
    return by_kind.get(Transcript._meta.label, 0)


def _append(key: SessionKey, entries: Sequence[Entry], choose: Filter) -> int:
    if not entries:
        return 0
    written: list[str] = []
    try:
        with transaction.atomic():
            transcript, is_new = _locked(key)
            new = choose([] if is_new else list(read_chunks(transcript)), entries)
            if new:
                first = 0 if is_new else next_number(transcript)
                write_chunks(transcript, new, written, first=first)
                _note_change(transcript, key, new)
    except BaseException:
        remove_files(written)
        raise
    return len(new)


def _locked(key: SessionKey) -> tuple[Transcript, bool]:
    """One writer at a time: by the row's lock, or by SQLite's for the whole database.

    True beside it: the row is new, so that nobody else can see it yet.
    """
    row, is_new = Transcript.objects.get_or_create(
        project_key=key["project_key"],
        session_id=key["session_id"],
        subpath=key.get("subpath", ""),
    )
    return row if is_new else Transcript.objects.select_for_update().get(pk=row.pk), is_new


def _with_new_uuid(kept: Sequence[Entry], sent: Sequence[Entry]) -> list[Entry]:
    known = {entry["uuid"] for entry in kept if _has_uuid(entry)}
    new = []
    for entry in sent:
        if _has_uuid(entry):
            if entry["uuid"] in known:
                continue
            known.add(entry["uuid"])
        new.append(entry)
    return new


def missing_from(kept: Sequence[Entry], sent: Sequence[Entry]) -> list[Entry]:
    """What of one copy of a transcript the other lacks."""
    there = Counter(encode(entry) for entry in kept if not _has_uuid(entry))
    new = []
    for entry in _with_new_uuid(kept, sent):
        line = b"" if _has_uuid(entry) else encode(entry)
        if there[line]:
            there[line] -= 1
        else:
            new.append(entry)
    return new


def _has_uuid(entry: Entry) -> bool:
    return isinstance(entry.get("uuid"), str)


def _note_change(transcript: Transcript, key: SessionKey, new: Sequence[Entry]) -> None:
    """The summary is a convenience: an entry that breaks it must not cost us the transcript."""
    try:
        transcript.summary = _folded(transcript, key, new)
    except Exception:
        logger.warning("%s: its summary cannot be brought up to date", transcript, exc_info=True)
    # Also right after the clock was set back: a copy never seems older than it was.
    transcript.updated_at = max(timezone.now(), transcript.updated_at)
    transcript.save(update_fields=["summary", "updated_at"])


def _folded(transcript: Transcript, key: SessionKey, new: Sequence[Entry]) -> dict[str, Any] | None:
    """Of a conversation the SDK's summary; of a subagent what the CLI says about it."""
    if transcript.subpath:
        told = [entry for entry in new if entry.get("type") == "agent_metadata"]
        return _storable(told[-1]) if told else transcript.summary
    # Only here: the SDK takes 35 MB, which a process that archives nothing need not have.
    from claude_agent_sdk import fold_session_summary

    before = _summary_entry(transcript) if transcript.summary is not None else None
    folded = fold_session_summary(before, key, cast("list[SessionStoreEntry]", list(new)))
    return _storable(folded["data"])


def _storable(data: Entry) -> dict[str, Any]:
    """Masked, because only the chunks are sealed, and without what PostgreSQL refuses in JSON: NUL
    and half surrogate pairs."""
    return {
        name: masked(clean(value)) if isinstance(value, str) else value
        for name, value in data.items()
        if isinstance(value, str | int | float | bool | None)
    }


def _found(key: SessionKey) -> QuerySet[Transcript]:
    return Transcript.objects.filter(
        project_key=key["project_key"],
        session_id=key["session_id"],
        subpath=key.get("subpath", ""),
    )


def listed(project_key: str) -> list[SessionStoreListEntry]:
    rows = Transcript.objects.filter(project_key=project_key, subpath="")
    return [{"session_id": row.session_id, "mtime": _milliseconds(row)} for row in rows]


def summaries(project_key: str) -> list[SessionSummaryEntry]:
    rows = Transcript.objects.filter(project_key=project_key, subpath="", summary__isnull=False)
    return [_summary_entry(row) for row in rows]


def _summary_entry(row: Transcript) -> SessionSummaryEntry:
    return {"session_id": row.session_id, "mtime": _milliseconds(row), "data": row.summary or {}}


def subkeys(key: SessionListSubkeysKey) -> list[str]:
    rows = subtranscripts(key["project_key"], key["session_id"])
    return list(rows.values_list("subpath", flat=True))


def _milliseconds(row: Transcript) -> int:
    return int(row.updated_at.timestamp() * 1000)
