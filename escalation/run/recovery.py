"""Recovers sessions whose runner died.

1. Read the spool file, and what the transcript holds beyond the last stored event.
2. Stop the processes that survive: the CLI and the tools that it started.
3. Finish the session as its own runner would have (`finish`).
4. Enqueue queued sessions again whose task died with a worker.

Each step can be repeated: a recovery that is interrupted is done again by the next one.
"""

from __future__ import annotations

import logging
import socket
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from escalation.agent.process import (
    Ended,
    Manner,
    ProcessId,
    boot_id,
    family,
    recorded_tools,
    started_at,
    stop_family,
)
from escalation.agent.stream import StreamFacts
from escalation.queue import LOST_TASK_AGE, enqueue_session, waiting_sessions
from escalation.run.command_checks import settle_from_events
from escalation.run.finish import finish_run, read_from_transcript
from escalation.run.prepare import remove_run_directory, traces_of
from escalation.run.recorder import Recorder, read_finished_spools, read_spool
from escalation.run.runner import this_runner
from escalation.supervisor.successors import lineage_of
from sessions_app.models import PauseSwitch, Session, SessionEvent
from sessions_app.models.installation import awake_since, shared_moment, shared_now
from sessions_app.redaction.encryption import learn_addresses


def without_task(*, at_start: bool) -> list[Session]:
    """Queued sessions without a task. At a worker's start taken tasks are dead; later age tells."""
    waiting = waiting_sessions(include_taken=not at_start)
    queued = Session.objects.filter(status=Session.Status.QUEUED).select_related("cycle__watch")
    if not at_start:
        # A session that waits for a slot has no task until it gets one.
        queued = queued.filter(
            created_at__lt=timezone.now() - LOST_TASK_AGE, waiting_since__isnull=True
        )
    return [session for session in queued if session.pk not in waiting]


# Silence after which a session on another host is recovered. Its runner stops it earlier
# (`runner.LEASE_SECONDS`).
FOREIGN_SILENCE = timedelta(seconds=45)
# Silence after which a session is recovered although its worker lives.
LOCAL_SILENCE = timedelta(minutes=15)


def orphans() -> list[Session]:
    """Running sessions whose runner is gone. Cheap, because every worker asks often."""
    running = Session.objects.filter(status=Session.Status.RUNNING).select_related("cycle__watch")
    suspects = list(
        running.filter(
            Q(host=socket.gethostname())
            | Q(heartbeat_at=None)
            | Q(heartbeat_at__lte=shared_moment(FOREIGN_SILENCE))
        )
    )
    if not suspects:
        return []
    now, awake = shared_now(), awake_since()
    return [session for session in suspects if not _lives(session, now, awake)]


def runner_lives(session: Session) -> bool:
    return _lives(session, shared_now(), awake_since())


def _lives(session: Session, now: datetime, awake: datetime | None) -> bool:
    seen = session.heartbeat_at or session.started_at or session.created_at
    if session.host != socket.gethostname():
        # While the database was unavailable, no heartbeat could be stored.
        return now - max(seen, awake or seen) < FOREIGN_SILENCE
    silent = now - seen
    if session.boot_id != boot_id() or session.runner_pid is None or silent > LOCAL_SILENCE:
        return False
    return started_at(session.runner_pid) == session.runner_started


def take_over(session: Session) -> bool:
    """Become the session's runner, so that only one of two recoveries does the work.

    If this process dies too, the session is an orphan again.
    """
    taken = Session.objects.filter(
        pk=session.pk,
        status=Session.Status.RUNNING,
        runner_pid=session.runner_pid,
        runner_started=session.runner_started,
    ).update(**_recoverer(), heartbeat_at=shared_now())
    return bool(taken)


def let_go(session: Session) -> None:
    """Give the session up after a failed recovery, so that the next one finds it."""
    Session.objects.filter(pk=session.pk, status=Session.Status.RUNNING).update(
        runner_pid=None, runner_started=None
    )


def _recoverer() -> dict[str, Any]:
    """Fields of this process without the host, which decides where a session can be resumed."""
    return {name: value for name, value in this_runner().items() if name != "host"}


logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovered:
    session: int
    tier: int
    what: str


def recover(*, dry_run: bool = False, at_start: bool = False) -> list[Recovered]:
    """Recover sessions and lost tasks; a dry run only reports them."""
    if not dry_run:
        read_finished_spools()
    done = recover_orphans(dry_run=dry_run)
    for session in [] if PauseSwitch.is_on() else without_task(at_start=at_start):
        if not dry_run:
            enqueue_session(session)
        done.append(Recovered(session=session.pk, tier=session.tier, what="is enqueued again"))
    return done


def recover_orphans(*, dry_run: bool = False) -> list[Recovered]:
    """Recover running sessions only; cheap where there is no orphan."""
    return [
        Recovered(
            session=session.pk,
            tier=session.tier,
            what="would be ended" if dry_run else _attempt(session),
        )
        for session in orphans()
    ]


def _attempt(session: Session) -> str:
    """Recover one session; an error must not prevent the recovery of the others."""
    try:
        return _recover_one(session)
    except Exception as error:
        logger.exception("Could not recover session %s; the next recovery tries again", session.pk)
        let_go(session)
        return f"could not be recovered: {error}"


def _recover_one(session: Session) -> str:
    if not take_over(session):
        return "is being recovered by another process"
    learn_addresses()
    read_spool(session)
    recorder, facts = Recorder(session), StreamFacts()
    read_from_events(session, recorder, facts)
    read_from_transcript(session, recorder, facts)
    facts.note_stop()
    stop_processes(session)
    settle_from_events(session)
    decision = finish_run(
        lineage_of(session),
        recorder,
        facts,
        Ended(manner=Manner.RUNNER_GONE, exit_code=None),
        duration_ms=_duration_ms(session, recorder),
    )
    logger.warning("Session %s was recovered: %s", session.pk, decision.reason)
    return decision.reason


def stop_processes(session: Session) -> None:
    """Stop the processes of a session that this host started since its last boot."""
    if session.host != socket.gethostname() or session.boot_id != boot_id():
        return
    root = None
    if session.cli_pid is not None and session.cli_started is not None:
        root = ProcessId(session.cli_pid, session.cli_started)
    log = traces_of(session, session.run_mark).tool_log or Path("/nonexistent")
    survivors = stop_family(
        lambda: family(root, recorded_tools(log), session.run_mark), STOP_GRACE_SECONDS
    )
    if survivors:
        logger.error("Session %s: could not stop the processes %s", session.pk, survivors)


def read_from_events(session: Session, recorder: Recorder, facts: StreamFacts) -> None:
    """Collect the facts of the stream from the events that the dead runner stored."""
    for event in session.events.order_by("sequence").iterator():
        recorder.hear_again(event)
        if event.source == SessionEvent.Source.STREAM and isinstance(event.payload, dict):
            facts.observe(event.payload)


def _duration_ms(session: Session, recorder: Recorder) -> int | None:
    """Duration until the last sign of life, because the end was not seen."""
    signs = [moment for moment in (recorder.last_line_at, session.heartbeat_at) if moment]
    if session.started_at is None or not signs:
        return None
    return max(0, int((max(signs) - session.started_at).total_seconds() * 1000))


YOUNG_SECONDS = 10.0
"""Age below which a session directory is left to its runner."""


def sweep() -> None:
    """Stop processes without a runner on this host, and remove directories of ended sessions.

    A recovery on another host cannot do either. Every worker calls this more often than the silence
    after which others recover, so a CLI is stopped before another host continues its work.
    """
    numbers = _old_enough()
    for session in Session.objects.filter(pk__in=numbers) if numbers else ():
        is_here = session.host == socket.gethostname()
        if session.status == Session.Status.RUNNING and is_here:
            if not runner_lives(session):
                stop_processes(session)
        elif session.status != Session.Status.QUEUED:
            _clear_away(session)


def _clear_away(session: Session) -> None:
    logger.warning("Session %s ended or runs elsewhere; removing its processes here", session.pk)
    stop_processes(session)
    remove_run_directory(session)


def _old_enough() -> list[int]:
    found = (Path(settings.CLAUDEOPS_STATE_DIR) / "runs").glob("session-*")
    return [
        int(path.name.removeprefix("session-"))
        for path in found
        if path.name.removeprefix("session-").isdigit() and _is_old(path)
    ]


def _is_old(path: Path) -> bool:
    """Return False also for a directory that has just been removed."""
    try:
        return path.stat().st_mtime < time.time() - YOUNG_SECONDS
    except OSError:
        return False
