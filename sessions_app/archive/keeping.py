"""What becomes of the archive with time: what was kept in the clear is sealed, what is old goes."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from sessions_app.archive.transcript_chunks import remove_files, seal_chunk
from sessions_app.archive.transcript_store import remove_transcripts
from sessions_app.models import Session, Transcript, TranscriptChunk

logger = logging.getLogger(__name__)


def clear_chunks() -> QuerySet[TranscriptChunk]:
    """Kept before the archive was sealed."""
    return TranscriptChunk.objects.filter(sealed=False)


def seal_clear_chunks() -> int:
    """One that cannot be sealed must not keep the others from it."""
    return sum(_sealed(number) for number in list(clear_chunks().values_list("pk", flat=True)))


def _sealed(number: int) -> bool:
    written: list[str] = []
    try:
        with transaction.atomic():
            chunk = clear_chunks().select_for_update().filter(pk=number).first()
            if chunk is None:  # another host was quicker
                return False
            clear_file = seal_chunk(chunk, written)
            transaction.on_commit(lambda: remove_files([clear_file]))
    except Exception:
        remove_files(written)
        logger.exception("Chunk %s of the archive could not be sealed", number)
        return False
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
