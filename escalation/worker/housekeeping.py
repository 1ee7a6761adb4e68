"""Expiry and cleaning: what is too old to continue, what is kept, what may go.

Never touched: a session in use, and any session row. Transcripts are archived before their files
go, and both events and archived transcripts go only after their time.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from escalation.continuity import transcripts
from escalation.next_step.expiry import expire_queued
from sessions_app.archive import keeping
from sessions_app.archive.sealed_things import chunks_to_reseal, targets_to_reseal
from sessions_app.models import (
    AccountClock,
    Conversation,
    Cycle,
    Happening,
    Message,
    Session,
    SessionEvent,
)
from sessions_app.models.querysets import LONG_FIELDS
from sessions_app.models.transitions import IllegalTransition

logger = logging.getLogger(__name__)

HANDOFF_AGE = timedelta(hours=1)
FILES_GO_FIRST_DAYS = 7
NEVER_STARTED = (
    "It waited in the queue for longer than CLAUDEOPS_RESUME_MAX_AGE and was never started. Look "
    "whether a worker runs, then run the watch again."
)


@dataclass(slots=True)
class Cleaned:
    """What was found, and, unless it was a dry run, done."""

    conversations_expired: int = 0
    sessions_expired: int = 0
    transcripts_archived: int = 0
    chunks_sealed: int = 0
    sealed_with_new_key: int = 0
    transcripts_removed: int = 0
    events_pruned: int = 0
    happenings_pruned: int = 0
    directories_removed: int = 0
    handoff_files_removed: int = 0
    bytes_freed: int = 0

    def __str__(self) -> str:
        counts = asdict(self)
        return ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts.items())


def clean(*, dry_run: bool = False, now: datetime | None = None) -> Cleaned:
    now = now or timezone.now()
    cleaned = Cleaned()
    _archive_transcripts(cleaned, dry_run)
    _expire(cleaned, now - timedelta(seconds=settings.CLAUDEOPS_RESUME_MAX_AGE), dry_run)
    long_ago = now - timedelta(days=settings.CLAUDEOPS_EVENT_RETENTION_DAYS)
    _prune_events(cleaned, long_ago, dry_run)
    _prune_word(cleaned, long_ago, dry_run)
    _remove_directories(cleaned, long_ago, dry_run)
    _remove_handoff_files(cleaned, now - HANDOFF_AGE, dry_run)
    _keep_archive(cleaned, now, dry_run)
    return cleaned


def _archive_transcripts(cleaned: Cleaned, dry_run: bool) -> None:
    """What a run could not archive at its end: the database was away, or the process died."""
    finished = Session.objects.exclude(status__in=Session.OPEN_STATUSES).defer(*LONG_FIELDS)
    for session in transcripts.without_archive(finished).iterator():
        if transcripts.find_on_disk(session) != transcripts.TranscriptState.PRESENT:
            continue
        if dry_run or _archived(session):
            cleaned.transcripts_archived += 1


def _keep_archive(cleaned: Cleaned, now: datetime, dry_run: bool) -> None:
    """The archive outlives the CLI's own files, or each of them would be archived again."""
    days = max(
        settings.CLAUDEOPS_ARCHIVE_RETENTION_DAYS,
        settings.CLAUDEOPS_EVENT_RETENTION_DAYS + FILES_GO_FIRST_DAYS,
    )
    long_ago = now - timedelta(days=days)
    if dry_run:
        cleaned.chunks_sealed = keeping.clear_chunks().count()
        cleaned.sealed_with_new_key = len(chunks_to_reseal()) + len(targets_to_reseal())
        cleaned.transcripts_removed = keeping.old_transcripts(long_ago).count()
        return
    cleaned.transcripts_removed = keeping.remove_old(long_ago)
    cleaned.chunks_sealed = keeping.seal_clear_chunks()
    cleaned.sealed_with_new_key = keeping.seal_with_first_key()


def _archived(session: Session) -> bool:
    """One that cannot be archived must not keep the others from it."""
    try:
        transcripts.archive(session)
    except Exception:
        logger.exception("Session %s: its transcript could not be archived", session.pk)
        return False
    return True


def _expire(cleaned: Cleaned, cutoff: datetime, dry_run: bool) -> None:
    conversations = Conversation.objects.filter(
        state=Conversation.State.LIVE, in_use_by=None, last_used_at__lt=cutoff
    )
    cut_off = Session.objects.filter(
        status=Session.Status.INTERRUPTED, finished_at__lt=cutoff, conversation_held=None
    )
    never_started = Session.objects.filter(
        status=Session.Status.QUEUED, created_at__lt=cutoff
    ).select_related("cycle__watch", "parent_session")
    held_until = AccountClock.current().until
    if held_until is not None and held_until > cutoff:
        # It waited for the account, not in vain for a worker.
        never_started = never_started.exclude(cycle__drill="")
    cleaned.conversations_expired = conversations.count()
    cleaned.sessions_expired = cut_off.count() + never_started.count()
    if dry_run:
        return
    for session in cut_off:
        session.expire("its conversation is too old to be continued")
    for session in never_started:
        _expire_queued(session)
    conversations.update(
        state=Conversation.State.EXPIRED, reason="not used for longer than CLAUDEOPS_RESUME_MAX_AGE"
    )


def _expire_queued(session: Session) -> None:
    """The conversation that it would continue has expired, too."""
    try:
        expire_queued(session, NEVER_STARTED)
    except IllegalTransition as moved_on:
        logger.info("Not expired: %s", moved_on)


def _prune_events(cleaned: Cleaned, long_ago: datetime, dry_run: bool) -> None:
    old = SessionEvent.objects.filter(
        ~Q(session__status__in=Session.OPEN_STATUSES), session__finished_at__lt=long_ago
    )
    cleaned.events_pruned = old.count()
    if not dry_run:
        old.delete()


def _prune_word(cleaned: Cleaned, long_ago: datetime, dry_run: bool) -> None:
    """What was told so long ago, with its messages; what still waits stays."""
    told = Happening.objects.filter(passed_on_at__lt=long_ago)
    sent = Message.objects.filter(~Q(state=Message.State.WAITING), created_at__lt=long_ago)
    cleaned.happenings_pruned = told.count()
    if not dry_run:
        sent.delete()
        told.exclude(messages__state=Message.State.WAITING).delete()


def _remove_directories(cleaned: Cleaned, long_ago: datetime, dry_run: bool) -> None:
    """The CLI's own files of cycles that ended long ago; their transcripts are in the archive."""
    removable = _cycles_that_may_go(long_ago)
    for directory in _cycle_directories():
        if int(directory.name.removeprefix("cycle-")) not in removable:
            continue
        cleaned.directories_removed += 1
        cleaned.bytes_freed += _size(directory)
        if not dry_run:
            shutil.rmtree(directory, ignore_errors=True)


def _cycles_that_may_go(long_ago: datetime) -> set[int]:
    """Two questions, however many there are: what ended long ago, less what is not archived."""
    old = Cycle.objects.filter(state=Cycle.State.FINISHED, finished_at__lt=long_ago)
    theirs = Session.objects.filter(cycle__in=old).defer(*LONG_FIELDS)
    needed = {
        session.cycle_id
        for session in transcripts.without_archive(theirs).iterator()
        if transcripts.find_on_disk(session) == transcripts.TranscriptState.PRESENT
    }
    return set(old.values_list("pk", flat=True)) - needed


def _cycle_directories() -> Iterator[Path]:
    for kind in ("claude", "drills"):
        for path in (Path(settings.CLAUDEOPS_STATE_DIR) / kind).glob("cycle-*"):
            if path.is_dir() and path.name.removeprefix("cycle-").isdecimal():
                yield path


def _remove_handoff_files(cleaned: Cleaned, cutoff: datetime, dry_run: bool) -> None:
    """A handoff is used within moments; what lies about was left by a process that died."""
    for path in (Path(settings.CLAUDEOPS_STATE_DIR) / "handoffs").glob("*"):
        stat = path.stat()
        if stat.st_mtime > cutoff.timestamp():
            continue
        cleaned.handoff_files_removed += 1
        cleaned.bytes_freed += stat.st_size
        if not dry_run:
            logger.warning("The leftover handoff file %s is removed unused", path.name)
            path.unlink(missing_ok=True)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
