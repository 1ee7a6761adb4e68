"""What becomes of the archive with time: what was kept in the clear or sealed with an older key is
sealed with the first one, what is old goes."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from sessions_app.archive.sealed_things import chunks_to_reseal, targets_to_reseal
from sessions_app.archive.transcript_chunks import remove_files, seal_chunk
from sessions_app.archive.transcript_store import remove_transcripts
from sessions_app.models import Session, Target, Transcript, TranscriptChunk
from sessions_app.reading.sealing import SealedWithAnotherKey
from sessions_app.reading.target_addresses import address_of, sealed_address

logger = logging.getLogger(__name__)


def clear_chunks() -> QuerySet[TranscriptChunk]:
    """Kept before the archive was sealed."""
    return TranscriptChunk.objects.filter(sealed=False)


def seal_clear_chunks() -> int:
    """One that cannot be sealed must not keep the others from it."""
    numbers = list(clear_chunks().values_list("pk", flat=True))
    return sum(_sealed(clear_chunks(), number) for number in numbers)


def seal_with_first_key() -> int:
    """What an older key sealed, addresses of targets too. Afterwards that key can be dropped."""
    chunks = sum(_sealed(TranscriptChunk.objects.all(), number) for number in chunks_to_reseal())
    return chunks + sum(_resealed(number) for number in targets_to_reseal())


def _sealed(wanted: QuerySet[TranscriptChunk], number: int) -> bool:
    written: list[str] = []
    try:
        with transaction.atomic():
            chunk = wanted.select_for_update().filter(pk=number).first()
            if chunk is None:  # another host was quicker
                return False
            old_file = seal_chunk(chunk, written)
            transaction.on_commit(lambda: remove_files([old_file]))
    except Exception:
        remove_files(written)
        logger.exception("Chunk %s of the archive could not be sealed", number)
        return False
    return True


@transaction.atomic
def _resealed(number: int) -> bool:
    target = Target.objects.select_for_update().filter(pk=number).first()
    if target is None:
        return False
    try:
        target.sealed_address = sealed_address(address_of(target))
    except SealedWithAnotherKey:
        return False
    target.save(update_fields=["sealed_address"])
    return True


def old_transcripts(before: datetime) -> QuerySet[Transcript]:
    """Not touched since then, and of no session that still goes on."""
    open_sessions = Session.objects.filter(
        session_id=OuterRef("session_id"), status__in=Session.OPEN_STATUSES
    )
    return Transcript.objects.filter(updated_at__lt=before).exclude(Exists(open_sessions))


def remove_old(before: datetime) -> int:
    old = list(old_transcripts(before).values_list("pk", flat=True))
    return remove_transcripts(Transcript.objects.filter(pk__in=old)) if old else 0
