"""Does the key that is here open what is kept? A second host may have come with another one. And
what has an older key sealed, which is still needed for that?"""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import BinaryField, QuerySet
from django.db.models.functions import Substr

from sessions_app.archive.transcript_chunks import beginning_of
from sessions_app.models import Target, TranscriptChunk
from sessions_app.reading.sealing import (
    KEY_IS_ANOTHER,
    PRINT_BYTES,
    has_older_keys,
    is_ours,
    needs_new_seal,
)

LOOKED_AT = 20
"""The newest of the archive: what another host has sealed is among them."""
ALL_OPEN = "the key opens all that was looked at"
STILL_NEEDED = "an older key is still needed for {count}: `claudeops clean` seals them anew"
NOT_NEEDED = "nothing needs an older key any more: those behind the first can be dropped"


def locked_things() -> list[str]:
    """Names of what none of our keys sealed."""
    return [*_locked_targets(), *_locked_chunks()]


def what_the_key_opens() -> tuple[bool, str]:
    """Whether all is well, and a sentence about it."""
    locked = locked_things()
    if not locked:
        return True, ALL_OPEN
    more = f" and {len(locked) - 1} more" if len(locked) > 1 else ""
    return False, f"{locked[0]}{more} cannot be opened: {KEY_IS_ANOTHER}."


def about_older_keys() -> str:
    """Nothing where there is one key alone. For who asks: the whole archive is looked at."""
    if not has_older_keys():
        return ""
    count = len(targets_to_reseal()) + len(chunks_to_reseal())
    return STILL_NEEDED.format(count=count) if count else NOT_NEEDED


def targets_to_reseal() -> list[int]:
    if not has_older_keys():
        return []
    rows = Target.objects.values_list("pk", "sealed_address")
    return [number for number, sealed in rows if needs_new_seal(bytes(sealed))]


def chunks_to_reseal() -> list[int]:
    """All of the archive is looked at, but only while an older key is there."""
    if not has_older_keys():
        return []
    sealed = TranscriptChunk.objects.filter(sealed=True).order_by("pk")
    return [chunk.pk for chunk, begins in _beginnings(sealed) if needs_new_seal(begins)]


def _locked_targets() -> Iterator[str]:
    for target in Target.objects.only("name", "sealed_address"):
        if not is_ours(bytes(target.sealed_address)):
            yield f"The address of {target.name}"


def _locked_chunks() -> Iterator[str]:
    newest = TranscriptChunk.objects.filter(sealed=True).order_by("-pk")
    for chunk, begins in _beginnings(newest.select_related("transcript")[:LOOKED_AT]):
        if not is_ours(begins):
            yield str(chunk)


def _beginnings(chunks: QuerySet[TranscriptChunk]) -> Iterator[tuple[TranscriptChunk, bytes]]:
    """Only the beginning of each is read: it names its key."""
    begun = chunks.defer("content").annotate(
        begins=Substr("content", 1, PRINT_BYTES, output_field=BinaryField())
    )
    for chunk in begun.iterator():
        try:
            yield chunk, beginning_of(chunk) if chunk.stored_as else _read(chunk.begins)
        except OSError:  # damage, which is another matter
            continue


def _read(content: object) -> bytes:
    """SQLite gives bytes, PostgreSQL a view of them."""
    assert isinstance(content, bytes | memoryview)
    return bytes(content)
