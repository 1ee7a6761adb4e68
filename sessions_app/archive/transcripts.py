"""Archive of the CLI's transcripts, shared by all hosts of an installation.

Entries are stored as chunks: compressed and encrypted, in a row or in a file of
CLAUDEOPS_ARCHIVE_DIR, which several hosts may mount. An entry with a uuid is stored once. Other
lines (costs, queue operations) may repeat: `append_missing` counts them, so that the same growing
file can be archived after every session. Entries are JSON in ASCII, so that unpaired surrogates are
restored as they were.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage
from django.db import transaction
from django.db.models import OuterRef, QuerySet
from django.utils import timezone

from sessions_app.models import Transcript, TranscriptChunk
from sessions_app.redaction.encryption import (
    FINGERPRINT_BYTES,
    EncryptedWithAnotherKey,
    decrypt,
    encrypt,
)
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionStoreEntry,
        SessionSummaryEntry,
    )


CHUNK_BYTES = 4 * 1024 * 1024
"""Size of the uncompressed lines of a chunk; a longer line has a chunk of its own."""

Entry = dict[str, Any]


class TranscriptDamaged(Exception):
    """Raised if a chunk is missing or cannot be read."""


class TranscriptLocked(TranscriptDamaged):
    """Raised if a chunk is encrypted with another key. It must be kept."""


def encode(entry: Entry) -> bytes:
    """Encode an entry as JSON. Raise ValueError for values like infinity."""
    return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode("ascii")


def next_number(transcript: Transcript) -> int:
    """Return the number of the next chunk."""
    last = transcript.chunks.order_by("-number").values_list("number", flat=True).first()
    return 0 if last is None else last + 1


def write_chunks(
    transcript: Transcript, entries: Iterable[Entry], written: list[str], *, first: int
) -> None:
    """Add entries as chunks, numbered from `first`. The caller holds the transcript's lock.

    The names of new files are added to `written`, for removal if the transaction fails.
    """
    for number, lines in enumerate(_in_pieces(entries), start=first):
        chunk = TranscriptChunk(transcript=transcript, number=number, entries=len(lines))
        _put(chunk, zlib.compress(b"\n".join(lines)), written)


def encrypt_chunk(chunk: TranscriptChunk, written: list[str]) -> str:
    """Encrypt a chunk with the first key. Return the file to remove after the commit."""
    old_file = chunk.stored_as
    _put(chunk, _decrypted(chunk), written)
    return old_file


def _put(chunk: TranscriptChunk, compressed: bytes, written: list[str]) -> None:
    content = encrypt(compressed)
    chunk.encrypted = True
    if storage := archive_storage():
        name = f"transcript-{chunk.transcript_id}/{chunk.number:06d}.jsonl.z.sealed"
        chunk.stored_as, chunk.content = storage.save(name, ContentFile(content)), b""
        written.append(chunk.stored_as)
    else:
        chunk.stored_as, chunk.content = "", content
    chunk.save()


def read_chunks(transcript: Transcript) -> Iterator[Entry]:
    for chunk in transcript.chunks.order_by("number").iterator(chunk_size=4):
        try:
            lines = zlib.decompress(_decrypted(chunk)).splitlines()
            entries = [json.loads(line) for line in lines]
        except EncryptedWithAnotherKey as error:
            raise TranscriptLocked(str(error)) from error
        except (OSError, ValueError, RecursionError, zlib.error) as error:
            raise TranscriptDamaged(f"{chunk} cannot be read: {error}") from error
        yield from entries


def archive_storage() -> FileSystemStorage | None:
    """Return the storage in CLAUDEOPS_ARCHIVE_DIR, or None if chunks are in the database."""
    directory = settings.CLAUDEOPS_ARCHIVE_DIR
    if not directory:
        return None
    return FileSystemStorage(
        location=directory, file_permissions_mode=0o600, directory_permissions_mode=0o700
    )


def remove_files(names: Iterable[str]) -> None:
    storage = archive_storage()
    for name in names:
        if storage and name:
            storage.delete(name)


def _decrypted(chunk: TranscriptChunk) -> bytes:
    content = _content(chunk)
    return decrypt(content, str(chunk)) if chunk.encrypted else content


def _content(chunk: TranscriptChunk) -> bytes:
    if not chunk.stored_as:
        return bytes(chunk.content)
    storage = archive_storage()
    if storage is None:
        raise FileNotFoundError(f"{chunk.stored_as}: CLAUDEOPS_ARCHIVE_DIR is not set")
    with storage.open(chunk.stored_as) as file:
        return bytes(file.read())


def beginning_of(chunk: TranscriptChunk) -> bytes:
    """Return the first bytes of a chunk in a file, which name its key."""
    storage = archive_storage()
    if storage is None:
        raise FileNotFoundError(chunk.stored_as)
    with storage.open(chunk.stored_as) as file:
        return bytes(file.read(FINGERPRINT_BYTES))


def _in_pieces(entries: Iterable[Entry]) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    held = 0
    for entry in entries:
        line = encode(entry)
        if lines and held + len(line) > CHUNK_BYTES:
            yield lines
            lines, held = [], 0
        lines.append(line)
        held += len(line)
    if lines:
        yield lines


logger = logging.getLogger(__name__)

Filter = Callable[[Sequence[Entry], Sequence[Entry]], list[Entry]]
"""Function from stored and sent entries to those that must be added."""


def append_entries(key: SessionKey, entries: Sequence[Entry]) -> int:
    """Add entries except those with known uuids. Return the number of new entries."""
    return _append(key, entries, _with_new_uuid)


def append_missing(key: SessionKey, entries: Sequence[Entry]) -> int:
    """Add the entries of a whole transcript that are not stored. Return their number."""
    return _append(key, entries, missing_from)


def load_entries(key: SessionKey) -> list[Entry] | None:
    """Return all entries of a transcript, or None. Raise TranscriptDamaged if a part is missing."""
    transcript = _found(key).first()
    return None if transcript is None else list(read_chunks(transcript))


def copies_of(session_id: str | OuterRef) -> QuerySet[Transcript]:
    """Select the copies of a conversation that have entries, of all hosts."""
    return Transcript.objects.filter(session_id=session_id, subpath="", chunks__isnull=False)


def latest_project(session_id: str) -> str | None:
    """Return the project key of the latest copy of a conversation, of any host."""
    found = copies_of(session_id).order_by("-updated_at")
    return found.values_list("project_key", flat=True).first()


def subtranscripts(project_key: str, session_id: str) -> QuerySet[Transcript]:
    rows = Transcript.objects.filter(project_key=project_key, session_id=session_id)
    return rows.exclude(subpath="").order_by("pk")


def delete_transcript(key: SessionKey, *, alone: bool = False) -> None:
    """Delete a transcript, and those of its subagents unless `alone` is set."""
    rows = _found(key)
    if not key.get("subpath") and not alone:
        rows = Transcript.objects.filter(
            project_key=key["project_key"], session_id=key["session_id"]
        )
    remove_transcripts(rows)


def remove_transcripts(rows: QuerySet[Transcript]) -> int:
    """Delete transcripts and, after the commit, their files. Return their number."""
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
    """Lock the row of a transcript. Also return True if it is new."""
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
    """Return the sent entries that are not stored."""
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
    """Update summary and time. An entry that breaks the summary is logged only."""
    try:
        transcript.summary = _folded(transcript, key, new)
    except Exception:
        logger.warning("Could not update the summary of %s", transcript, exc_info=True)
    # Never earlier than before, even if the clock was set back.
    transcript.updated_at = max(timezone.now(), transcript.updated_at)
    transcript.save(update_fields=["summary", "updated_at"])


def _folded(transcript: Transcript, key: SessionKey, new: Sequence[Entry]) -> dict[str, Any] | None:
    """Return the SDK's summary of a conversation, or the CLI's metadata of a subagent."""
    if transcript.subpath:
        told = [entry for entry in new if entry.get("type") == "agent_metadata"]
        return _storable(told[-1]) if told else transcript.summary
    # Only here: the SDK takes 35 MB, which a process that archives nothing need not have.
    from claude_agent_sdk import fold_session_summary

    before = _summary_entry(transcript) if transcript.summary is not None else None
    folded = fold_session_summary(before, key, cast("list[SessionStoreEntry]", list(new)))
    return _storable(folded["data"])


def _storable(data: Entry) -> dict[str, Any]:
    """Redact the summary, which is not encrypted, and keep plain values only."""
    return {
        name: redacted(clean(value)) if isinstance(value, str) else value
        for name, value in data.items()
        if isinstance(value, str | int | float | bool | None)
    }


def _found(key: SessionKey) -> QuerySet[Transcript]:
    return Transcript.objects.filter(
        project_key=key["project_key"],
        session_id=key["session_id"],
        subpath=key.get("subpath", ""),
    )


def _summary_entry(row: Transcript) -> SessionSummaryEntry:
    return {"session_id": row.session_id, "mtime": _milliseconds(row), "data": row.summary or {}}


def _milliseconds(row: Transcript) -> int:
    return int(row.updated_at.timestamp() * 1000)
