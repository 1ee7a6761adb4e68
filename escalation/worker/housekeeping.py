"""Housekeeping: expires old sessions, archives transcripts, and removes what is past its retention.

Sessions in use and rows of sessions are never removed. Transcripts are archived before their files
are removed.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.models import Q
from django.utils import timezone

from escalation.errors import WhyNot
from escalation.incidents import recorder
from escalation.incidents.findings import could_not_run
from escalation.queue import installation_lock, labels_of, live_hosts, unschedulable
from escalation.resume import transcripts
from escalation.run import searchable
from escalation.supervisor.manual import expire_interrupted, expire_queued
from sessions_app.archive import encryption_key
from sessions_app.models import (
    Alert,
    Conversation,
    Cycle,
    Delivery,
    HeartbeatPing,
    IdempotentRequest,
    Message,
    Notification,
    Probe,
    ProbeSum,
    RateLimit,
    RefusedDeliveries,
    Session,
    SessionEvent,
    TraceExport,
)
from sessions_app.models.session import LONG_FIELDS, IllegalTransition

MOST_FILES = 20_000
INDEXED_AT_ONCE = 20_000
"""Sessions of an older version that are added to the search at once."""
SQLITE_FILES = ("", "-wal", "-shm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    state_directory: str
    state_bytes: int
    is_cut: bool
    """There are more files than were counted."""
    database_bytes: int | None
    """None if unknown."""
    free_bytes: int | None
    total_bytes: int | None


def disk_now() -> Disk:
    state = Path(settings.CLAUDEOPS_STATE_DIR)
    sizes = list(islice(file_sizes(state), MOST_FILES))
    usage = shutil.disk_usage(state) if state.is_dir() else None
    return Disk(
        state_directory=str(state),
        state_bytes=sum(sizes),
        is_cut=len(sizes) == MOST_FILES,
        database_bytes=_database_bytes(),
        free_bytes=usage.free if usage else None,
        total_bytes=usage.total if usage else None,
    )


def file_sizes(directory: Path) -> Iterator[int]:
    """Yields the sizes of all files below a directory, without those that vanish meanwhile."""
    try:
        entries = os.scandir(directory)
    except OSError:
        return
    with entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from file_sizes(Path(entry.path))
                else:
                    yield entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue


def _database_bytes() -> int | None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
    name = str(connection.settings_dict["NAME"])
    files = [Path(name + ending) for ending in SQLITE_FILES]
    return sum(file.stat().st_size for file in files if file.is_file()) or None


logger = logging.getLogger(__name__)

HANDOFF_AGE = timedelta(hours=1)
FILES_GO_FIRST_DAYS = 7
NEVER_STARTED = (
    "It waited in the queue for longer than CLAUDEOPS_RESUME_MAX_AGE. Check that a worker is "
    "running, then run the watch again."
)
NOT_USED = "not used for longer than CLAUDEOPS_RESUME_MAX_AGE"


@dataclass(slots=True)
class Cleaned:
    """Counts of what was done, or of what a dry run would do."""

    conversations_expired: int = 0
    sessions_expired: int = 0
    transcripts_archived: int = 0
    chunks_encrypted: int = 0
    encrypted_with_new_key: int = 0
    transcripts_removed: int = 0
    file_contents_removed: int = 0
    events_pruned: int = 0
    notifications_pruned: int = 0
    probe_sums_pruned: int = 0
    heartbeat_calls_pruned: int = 0
    deliveries_pruned: int = 0
    trace_exports_pruned: int = 0
    sessions_indexed: int = 0
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
    _prune_notifications(cleaned, long_ago, dry_run)
    _prune_probes(cleaned, now, dry_run)
    _prune_deliveries(cleaned, long_ago, dry_run)
    _prune_trace_exports(cleaned, long_ago, dry_run)
    _prune_requests(now, dry_run)
    _index(cleaned, long_ago, dry_run)
    _remove_directories(cleaned, long_ago, dry_run)
    _remove_handoff_files(cleaned, now - HANDOFF_AGE, dry_run)
    _keep_archive(cleaned, now, dry_run)
    return cleaned


def _archive_transcripts(cleaned: Cleaned, dry_run: bool) -> None:
    """Archives transcripts that sessions could not archive at their end."""
    finished = Session.objects.exclude(status__in=Session.OPEN_STATUSES).defer(*LONG_FIELDS)
    for session in transcripts.without_archive(finished).iterator():
        if transcripts.find_on_disk(session) != transcripts.TranscriptState.PRESENT:
            continue
        if dry_run or _archived(session):
            cleaned.transcripts_archived += 1


def _keep_archive(cleaned: Cleaned, now: datetime, dry_run: bool) -> None:
    """Encrypts the archive and removes old transcripts, later than the files of the CLI."""
    days = max(
        settings.CLAUDEOPS_ARCHIVE_RETENTION_DAYS,
        settings.CLAUDEOPS_EVENT_RETENTION_DAYS + FILES_GO_FIRST_DAYS,
    )
    long_ago = now - timedelta(days=days)
    if dry_run:
        cleaned.chunks_encrypted = encryption_key.unencrypted_chunks().count()
        cleaned.encrypted_with_new_key = encryption_key.to_reencrypt()
        cleaned.transcripts_removed = encryption_key.old_transcripts(long_ago).count()
        cleaned.file_contents_removed = encryption_key.old_file_contents(long_ago).count()
        return
    cleaned.file_contents_removed, _rows = encryption_key.old_file_contents(long_ago).delete()
    cleaned.transcripts_removed = encryption_key.remove_old(long_ago)
    cleaned.chunks_encrypted = encryption_key.encrypt_chunks()
    cleaned.encrypted_with_new_key = encryption_key.encrypt_with_first_key()


def _archived(session: Session) -> bool:
    """Archives a transcript. An error is logged and does not stop the others."""
    try:
        transcripts.archive(session)
    except Exception:
        logger.exception("Could not archive the transcript of session %s", session.pk)
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
    held_until = RateLimit.current().until
    if held_until is not None and held_until > cutoff:
        # It waited for the rate limit, not for a worker.
        never_started = never_started.exclude(cycle__drill="")
    cleaned.conversations_expired = conversations.count()
    cleaned.sessions_expired = cut_off.count() + never_started.count()
    if dry_run:
        return
    for session in cut_off:
        expire_interrupted(session, "its conversation is too old to be continued")
    for session in never_started:
        _expire_queued(session)
    if cleaned.conversations_expired:
        with installation_lock():
            conversations.update(state=Conversation.State.EXPIRED, reason=NOT_USED)


def _expire_queued(session: Session) -> None:
    """Expires a session unless a worker has just taken it."""
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


def _index(cleaned: Cleaned, long_ago: datetime, dry_run: bool) -> None:
    """Removes old output from the search, and indexes some sessions that it does not have yet."""
    if dry_run:
        cleaned.sessions_indexed = searchable.count_missing(INDEXED_AT_ONCE)
        return
    searchable.forget_old_output(long_ago)
    cleaned.sessions_indexed, below = searchable.index_missing(INDEXED_AT_ONCE)
    if below:
        logger.info("Search: sessions below %s are not indexed yet; the next run goes on", below)


def _prune_deliveries(cleaned: Cleaned, long_ago: datetime, dry_run: bool) -> None:
    """Removes judged deliveries of alerts, alerts that have ended, and counts of refused ones."""
    old = Delivery.objects.filter(judged_at__isnull=False, received_at__lt=long_ago)
    cleaned.deliveries_pruned = old.count()
    if not dry_run:
        old.delete()
        Alert.objects.filter(state=Alert.State.RESOLVED, last_seen_at__lt=long_ago).delete()
        RefusedDeliveries.objects.filter(minute__lt=long_ago).delete()


def _prune_requests(now: datetime, dry_run: bool) -> None:
    """Removes answers that are kept for an `Idempotency-Key`."""
    if not dry_run:
        IdempotentRequest.objects.filter(created_at__lt=now - IdempotentRequest.KEPT).delete()


def _prune_trace_exports(cleaned: Cleaned, long_ago: datetime, dry_run: bool) -> None:
    """Removes the marks of what was exported, or has failed, long ago."""
    waiting = Q(state=TraceExport.State.WAITING)
    old = TraceExport.objects.filter(~waiting, due_at__lt=long_ago)
    cleaned.trace_exports_pruned = old.count() if dry_run else old.delete()[0]


def _prune_notifications(cleaned: Cleaned, long_ago: datetime, dry_run: bool) -> None:
    """Removes old notifications and their messages, except waiting ones."""
    passed_on = Notification.objects.filter(passed_on_at__lt=long_ago)
    sent = Message.objects.filter(~Q(state=Message.State.WAITING), created_at__lt=long_ago)
    cleaned.notifications_pruned = passed_on.count()
    if not dry_run:
        sent.delete()
        passed_on.exclude(messages__state=Message.State.WAITING).delete()


def _prune_probes(cleaned: Cleaned, now: datetime, dry_run: bool) -> None:
    """Removes old sums of five minutes, and all but the last calls of each heartbeat."""
    old = ProbeSum.objects.filter(
        period=ProbeSum.Period.FIVE_MINUTES, start__lt=now - ProbeSum.KEPT
    )
    cleaned.probe_sums_pruned = old.count() if dry_run else old.delete()[0]
    for number in Probe.objects.filter(kind=Probe.Kind.HEARTBEAT).values_list("pk", flat=True):
        pings = HeartbeatPing.objects.filter(probe=number).order_by("-pk")
        kept = pings.values_list("pk", flat=True)[HeartbeatPing.KEPT :].first()
        if kept is not None:
            surplus = HeartbeatPing.objects.filter(probe=number, pk__lte=kept)
            cleaned.heartbeat_calls_pruned += surplus.count() if dry_run else surplus.delete()[0]


def _remove_directories(cleaned: Cleaned, long_ago: datetime, dry_run: bool) -> None:
    """Removes the CLI files of old cycles whose transcripts are archived."""
    removable = _cycles_that_may_go(long_ago)
    for directory in _cycle_directories():
        if int(directory.name.removeprefix("cycle-")) not in removable:
            continue
        cleaned.directories_removed += 1
        cleaned.bytes_freed += sum(file_sizes(directory))
        if not dry_run:
            shutil.rmtree(directory, ignore_errors=True)


def _cycles_that_may_go(long_ago: datetime) -> set[int]:
    """Returns old cycles without unarchived transcripts, with two queries."""
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
    """Removes handoff files that a dead process left."""
    for path in (Path(settings.CLAUDEOPS_STATE_DIR) / "handoffs").glob("*"):
        try:
            stat = path.stat()
        except OSError:
            continue  # its session has just used it
        if stat.st_mtime > cutoff.timestamp():
            continue
        cleaned.handoff_files_removed += 1
        cleaned.bytes_freed += stat.st_size
        if not dry_run:
            logger.warning("Removing the unused handoff file %s", path.name)
            path.unlink(missing_ok=True)


TIMEOUT = timedelta(minutes=2)
"""A restarted host is back by then."""


def note_unschedulable() -> int:
    """Opens incidents for sessions whose hosts are not live. Returns the number of sessions."""
    bound = (
        Session.objects.filter(
            status=Session.Status.QUEUED, created_at__lt=timezone.now() - TIMEOUT
        )
        .exclude(cycle__watch=None)
        .exclude(cycle__watch__hosts="")
        .select_related("cycle__watch")
    )
    hosts = live_hosts() if bound.exists() else []
    waiting = [session for session in bound if unschedulable(labels_of(session), hosts)]
    for session in waiting:
        detail = (
            f"Session {session.pk} waits: the watch runs on {' or '.join(labels_of(session))} "
            "only, and no worker with that name or label has a recent heartbeat. Start one "
            "there (CLAUDEOPS_HOST_LABELS), or change the hosts of the watch."
        )
        finding = could_not_run(WhyNot.NO_HOST, recorder.scope_of(session.cycle), detail)
        recorder.note(finding, session.cycle.watch)
    return len(waiting)
