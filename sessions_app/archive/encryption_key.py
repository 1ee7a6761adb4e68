"""Checks the encryption keys against the stored data, encrypts it again, and removes old data.

A second host may have been set up with another key. After a change of the key, cleaning encrypts
the data with the first key, and older keys can be removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime

from django.db import transaction
from django.db.models import BinaryField, Exists, OuterRef, QuerySet
from django.db.models.functions import Substr

from sessions_app.archive.transcripts import (
    beginning_of,
    encrypt_chunk,
    remove_files,
    remove_transcripts,
)
from sessions_app.models import (
    Change,
    Channel,
    FileContent,
    Session,
    Source,
    Transcript,
    TranscriptChunk,
)
from sessions_app.redaction.encryption import (
    FINGERPRINT_BYTES,
    KEY_IS_ANOTHER,
    EncryptedWithAnotherKey,
    address_of,
    decrypt,
    encrypt,
    encrypt_address,
    has_known_key,
    has_older_key,
    has_older_keys,
    secret_of,
)

LOOKED_AT = 20
"""Number of the newest chunks that are checked; those of another host are among them."""
ALL_OPEN = "the key decrypts all checked data"
STILL_NEEDED = (
    "{count} items still need an older key: `claudeops clean` encrypts them with the first key"
)
NOT_NEEDED = "all data uses the first key: older keys can be removed"


def undecryptable_data() -> list[str]:
    """Return names of channels, sources and chunks that no key decrypts."""
    return [*_locked_channels(), *_locked_chunks()]


def check_keys() -> tuple[bool, str]:
    """Return True if the keys decrypt the newest data, and a message."""
    locked = undecryptable_data()
    if not locked:
        return True, ALL_OPEN
    more = f" and {len(locked) - 1} more" if len(locked) > 1 else ""
    return False, f"{locked[0]}{more} cannot be decrypted: {KEY_IS_ANOTHER}."


def older_keys_status() -> str:
    """Return a message about older keys, or an empty string. Reads the whole archive."""
    if not has_older_keys():
        return ""
    count = to_reencrypt()
    return STILL_NEEDED.format(count=count) if count else NOT_NEEDED


def channels_to_reencrypt() -> list[int]:
    if not has_older_keys():
        return []
    rows = Channel.objects.values_list("pk", "encrypted_address")
    return [number for number, encrypted in rows if has_older_key(bytes(encrypted))]


def sources_to_reencrypt() -> list[int]:
    """Return ids of sources of alerts whose secret has an older key."""
    if not has_older_keys():
        return []
    rows = Source.objects.values_list("pk", "encrypted_secret")
    return [number for number, encrypted in rows if has_older_key(bytes(encrypted))]


def to_reencrypt() -> int:
    """Count what needs an older key."""
    addresses = len(channels_to_reencrypt()) + len(sources_to_reencrypt())
    return addresses + len(chunks_to_reencrypt()) + len(files_to_reencrypt())


def files_to_reencrypt() -> list[int]:
    """Return ids of contents of edited files with an older key."""
    if not has_older_keys():
        return []
    begins = Substr("content", 1, FINGERPRINT_BYTES, output_field=BinaryField())
    rows = FileContent.objects.annotate(begins=begins).values_list("pk", "begins")
    return [number for number, begins in rows if has_older_key(_read(begins))]


def chunks_to_reencrypt() -> list[int]:
    """Return ids of chunks with an older key. Reads the whole archive if there is one."""
    if not has_older_keys():
        return []
    encrypted = TranscriptChunk.objects.filter(encrypted=True).order_by("pk")
    return [chunk.pk for chunk, begins in _beginnings(encrypted) if has_older_key(begins)]


def _locked_channels() -> Iterator[str]:
    for channel in Channel.objects.only("name", "encrypted_address"):
        if not has_known_key(bytes(channel.encrypted_address)):
            yield f"The address of {channel.name}"
    for source in Source.objects.exclude(encrypted_secret=b"").only("name", "encrypted_secret"):
        if not has_known_key(bytes(source.encrypted_secret)):
            yield f"The secret of {source.name}"


def _locked_chunks() -> Iterator[str]:
    newest = TranscriptChunk.objects.filter(encrypted=True).order_by("-pk")
    for chunk, begins in _beginnings(newest.select_related("transcript")[:LOOKED_AT]):
        if not has_known_key(begins):
            yield str(chunk)


def _beginnings(chunks: QuerySet[TranscriptChunk]) -> Iterator[tuple[TranscriptChunk, bytes]]:
    """Yield chunks with their first bytes, which name the key."""
    begun = chunks.defer("content").annotate(
        begins=Substr("content", 1, FINGERPRINT_BYTES, output_field=BinaryField())
    )
    for chunk in begun.iterator():
        try:
            yield chunk, beginning_of(chunk) if chunk.stored_as else _read(chunk.begins)
        except OSError:  # a missing file is reported elsewhere
            continue


def _read(content: object) -> bytes:
    """Return bytes; PostgreSQL returns a memoryview."""
    assert isinstance(content, bytes | memoryview)
    return bytes(content)


logger = logging.getLogger(__name__)


def unencrypted_chunks() -> QuerySet[TranscriptChunk]:
    return TranscriptChunk.objects.filter(encrypted=False)


def encrypt_chunks() -> int:
    """Encrypt chunks of versions without encryption, and return their number."""
    numbers = list(unencrypted_chunks().values_list("pk", flat=True))
    return sum(_encrypted(unencrypted_chunks(), number) for number in numbers)


def encrypt_with_first_key() -> int:
    """Encrypt data of older keys again; return the number of chunks, addresses and files."""
    every = TranscriptChunk.objects.all()
    chunks = sum(_encrypted(every, number) for number in chunks_to_reencrypt())
    channels = sum(_reencrypted(number) for number in channels_to_reencrypt())
    channels += sum(_source_reencrypted(number) for number in sources_to_reencrypt())
    return chunks + channels + sum(_file_reencrypted(number) for number in files_to_reencrypt())


def _encrypted(wanted: QuerySet[TranscriptChunk], number: int) -> bool:
    written: list[str] = []
    try:
        with transaction.atomic():
            chunk = wanted.select_for_update().filter(pk=number).first()
            if chunk is None:  # another host did it
                return False
            old_file = encrypt_chunk(chunk, written)
            transaction.on_commit(lambda: remove_files([old_file]))
    except Exception:
        remove_files(written)
        logger.exception("Could not encrypt chunk %s of the archive", number)
        return False
    return True


@transaction.atomic
def _reencrypted(number: int) -> bool:
    channel = Channel.objects.select_for_update().filter(pk=number).first()
    if channel is None:
        return False
    try:
        channel.encrypted_address = encrypt_address(address_of(channel))
    except EncryptedWithAnotherKey:
        return False
    channel.save(update_fields=["encrypted_address"])
    return True


@transaction.atomic
def _source_reencrypted(number: int) -> bool:
    source = Source.objects.select_for_update().filter(pk=number).first()
    if source is None:
        return False
    try:
        source.encrypted_secret = encrypt(secret_of(source).encode())
    except EncryptedWithAnotherKey:
        return False
    source.save(update_fields=["encrypted_secret"])
    return True


@transaction.atomic
def _file_reencrypted(number: int) -> bool:
    row = FileContent.objects.select_for_update().filter(pk=number).first()
    if row is None:
        return False
    try:
        row.content = encrypt(decrypt(bytes(row.content), str(row)))
    except (EncryptedWithAnotherKey, ValueError):
        return False
    row.save(update_fields=["content"])
    return True


def old_file_contents(before: datetime) -> QuerySet[FileContent]:
    """Select contents before edits that no change since a time refers to."""
    return FileContent.objects.exclude(
        Exists(Change.objects.filter(before_content=OuterRef("pk"), at__gte=before))
    ).filter(created_at__lt=before, remedies=None)


def old_transcripts(before: datetime) -> QuerySet[Transcript]:
    """Select transcripts without changes since a time and without an open session."""
    open_sessions = Session.objects.filter(
        session_id=OuterRef("session_id"), status__in=Session.OPEN_STATUSES
    )
    return Transcript.objects.filter(updated_at__lt=before).exclude(Exists(open_sessions))


def remove_old(before: datetime) -> int:
    old = list(old_transcripts(before).values_list("pk", flat=True))
    return remove_transcripts(Transcript.objects.filter(pk__in=old)) if old else 0
