"""Lines of a transcript as they are kept: compressed, in a row or in a directory of the operator's.

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

CHUNK_BYTES = 4 * 1024 * 1024
"""Of uncompressed lines; one longer line is a chunk of its own."""

Entry = dict[str, Any]


class TranscriptDamaged(Exception):
    """A chunk is gone or cannot be read: without it the conversation would have a silent gap."""


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
        content = zlib.compress(b"\n".join(lines))
        chunk = TranscriptChunk(transcript=transcript, number=number, entries=len(lines))
        if storage := archive_storage():
            name = f"transcript-{transcript.pk}/{number:06d}.jsonl.z"
            chunk.stored_as = storage.save(name, ContentFile(content))
            written.append(chunk.stored_as)
        else:
            chunk.content = content
        chunk.save()


def read_chunks(transcript: Transcript) -> Iterator[Entry]:
    for chunk in transcript.chunks.order_by("number").iterator(chunk_size=4):
        try:
            lines = zlib.decompress(_content(chunk)).splitlines()
            entries = [json.loads(line) for line in lines]
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


def _content(chunk: TranscriptChunk) -> bytes:
    if not chunk.stored_as:
        return bytes(chunk.content)
    storage = archive_storage()
    if storage is None:
        raise FileNotFoundError(f"{chunk.stored_as}: CLAUDEOPS_ARCHIVE_DIR is not set")
    with storage.open(chunk.stored_as) as file:
        return bytes(file.read())


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
