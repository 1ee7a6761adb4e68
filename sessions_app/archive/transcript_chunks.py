"""Lines of a transcript as they are kept: compressed and sealed, in a row or in a directory of the
operator's.

The directory (`CLAUDEOPS_ARCHIVE_DIR`) may be a mount that several hosts share. What is kept is
JSON in ASCII, so that half a surrogate pair, which some tool printed, comes back as it was.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage

from sessions_app.models import Transcript, TranscriptChunk
from sessions_app.reading.sealing import PRINT_BYTES, SealedWithAnotherKey, seal, unseal

CHUNK_BYTES = 4 * 1024 * 1024
"""Of uncompressed lines; one longer line is a chunk of its own."""

Entry = dict[str, Any]


class TranscriptDamaged(Exception):
    """A chunk is gone or cannot be read: without it the conversation would have a silent gap."""


class TranscriptLocked(TranscriptDamaged):
    """A chunk is whole, and sealed with another key: it must stay until that key is back."""


def encode(entry: Entry) -> bytes:
    """Raise ValueError for what is not JSON, such as an infinite number."""
    return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode("ascii")


def next_number(transcript: Transcript) -> int:
    """The number of the chunk that will be added next."""
    last = transcript.chunks.order_by("-number").values_list("number", flat=True).first()
    return 0 if last is None else last + 1


def write_chunks(
    transcript: Transcript, entries: Iterable[Entry], written: list[str], *, first: int
) -> None:
    """Add entries as chunks from a number on. The caller holds the transcript's lock.

    Files do not roll back: `written` gets their names, for a caller whose transaction fails.
    """
    for number, lines in enumerate(_in_pieces(entries), start=first):
        chunk = TranscriptChunk(transcript=transcript, number=number, entries=len(lines))
        _put(chunk, zlib.compress(b"\n".join(lines)), written)


def seal_chunk(chunk: TranscriptChunk, written: list[str]) -> str:
    """What was kept in the clear, or sealed with an older key, is sealed where it is. Gives the
    name of the file that may go once this is committed."""
    old_file = chunk.stored_as
    _put(chunk, _opened(chunk), written)
    return old_file


def _put(chunk: TranscriptChunk, compressed: bytes, written: list[str]) -> None:
    content = seal(compressed)
    chunk.sealed = True
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
            lines = zlib.decompress(_opened(chunk)).splitlines()
            entries = [json.loads(line) for line in lines]
        except SealedWithAnotherKey as error:
            raise TranscriptLocked(str(error)) from error
        except (OSError, ValueError, RecursionError, zlib.error) as error:
            raise TranscriptDamaged(f"{chunk} cannot be read: {error}") from error
        yield from entries


def archive_storage() -> FileSystemStorage | None:
    """Where chunks are kept outside the database, if the operator named a place."""
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


def _opened(chunk: TranscriptChunk) -> bytes:
    content = _content(chunk)
    return unseal(content, str(chunk)) if chunk.sealed else content


def _content(chunk: TranscriptChunk) -> bytes:
    if not chunk.stored_as:
        return bytes(chunk.content)
    storage = archive_storage()
    if storage is None:
        raise FileNotFoundError(f"{chunk.stored_as}: CLAUDEOPS_ARCHIVE_DIR is not set")
    with storage.open(chunk.stored_as) as file:
        return bytes(file.read())


def beginning_of(chunk: TranscriptChunk) -> bytes:
    """Of one that lies in a file: enough to see which key sealed it."""
    storage = archive_storage()
    if storage is None:
        raise FileNotFoundError(chunk.stored_as)
    with storage.open(chunk.stored_as) as file:
        return bytes(file.read(PRINT_BYTES))


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
