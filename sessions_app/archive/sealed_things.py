"""Does the key that is here open what is kept? A second host may have come with another one."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import BinaryField
from django.db.models.functions import Substr

from sessions_app.archive.transcript_chunks import beginning_of
from sessions_app.models import Target, TranscriptChunk
from sessions_app.reading.sealing import KEY_IS_ANOTHER, PRINT_BYTES, is_ours

LOOKED_AT = 20
"""The newest of the archive: what another host has sealed is among them."""
ALL_OPEN = "the key opens all that was looked at"


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


def _locked_targets() -> Iterator[str]:
    for target in Target.objects.only("name", "sealed_address"):
        if not is_ours(bytes(target.sealed_address)):
            yield f"The address of {target.name}"


def _locked_chunks() -> Iterator[str]:
    """Only the beginning of each is read: it names its key."""
    newest = TranscriptChunk.objects.filter(sealed=True).order_by("-pk").defer("content")
    begun = newest.annotate(
        begins=Substr("content", 1, PRINT_BYTES, output_field=BinaryField())
    ).select_related("transcript")
    for chunk in begun[:LOOKED_AT]:
        try:
            begins = beginning_of(chunk) if chunk.stored_as else _read(chunk.begins)
        except OSError:  # damage, which is another matter
            continue
        if not is_ours(begins):
            yield str(chunk)


def _read(content: object) -> bytes:
    """SQLite gives bytes, PostgreSQL a view of them."""
    assert isinstance(content, bytes | memoryview)
    return bytes(content)
