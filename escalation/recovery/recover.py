"""After a death: find the runs whose runner is gone, and bring each to a true end.

1. Read in what was spooled, and what the transcript on disk holds beyond the last stored event.
2. Stop what survives of the run: the CLI and the tools that it started.
3. Finish the run as its own runner would have (`run.finish`): facts, cost, decision, conclusion.
4. Hand queued sessions to the queue again whose task died with a worker.

Each step can be repeated: a recovery that is itself cut off is done again by the next one.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from pathlib import Path

from escalation.agent import (
    Ended,
    Manner,
    ProcessId,
    StreamFacts,
    boot_id,
    family,
    recorded_tools,
    stop_family,
)
from escalation.next_step.cycles import Enqueue
from escalation.next_step.lineage import lineage_of
from escalation.recovery.lost_tasks import without_task
from escalation.recovery.runners import let_go, orphans, take_over
from escalation.run import spool
from escalation.run.changes import settle_from_events
from escalation.run.directory import traces_of
from escalation.run.finish import finish_run, hear_the_rest
from escalation.run.recorder import Recorder
from sessions_app.models import PauseSwitch, Session, SessionEvent
from sessions_app.reading.target_addresses import learn_addresses

logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovered:
    session: int
    tier: int
    what: str


def recover(*, enqueue: Enqueue, dry_run: bool = False, at_start: bool = False) -> list[Recovered]:
    """What was found and, unless it was a dry run, done."""
    if not dry_run:
        spool.read_in_finished()
    done = recover_orphans(enqueue=enqueue, dry_run=dry_run)
    for session in [] if PauseSwitch.is_on() else without_task(at_start=at_start):
        if not dry_run:
            enqueue(session)
        done.append(
            Recovered(session=session.pk, tier=session.tier, what="is handed to the queue again")
        )
    return done


def recover_orphans(*, enqueue: Enqueue, dry_run: bool = False) -> list[Recovered]:
    """The runs alone: cheap where none is an orphan, so that it can be done often."""
    return [
        Recovered(
            session=session.pk,
            tier=session.tier,
            what="would be brought to its end" if dry_run else _attempt(session, enqueue),
        )
        for session in orphans()
    ]


def _attempt(session: Session, enqueue: Enqueue) -> str:
    """One that cannot be recovered must not hinder the others; the next recovery tries again."""
    try:
        return _recover_one(session, enqueue)
    except Exception as error:
        logger.exception("Session %s could not be recovered", session.pk)
        let_go(session)
        return f"could not be recovered: {error}"


def _recover_one(session: Session, enqueue: Enqueue) -> str:
    if not take_over(session):
        return "is being recovered by another process"
    learn_addresses()
    spool.read_in(session)
    recorder, facts = Recorder(session), StreamFacts()
    hear_again(session, recorder, facts)
    hear_the_rest(session, recorder, facts)
    facts.note_stop()
    stop_processes(session)
    settle_from_events(session)
    decision = finish_run(
        lineage_of(session),
        recorder,
        facts,
        Ended(manner=Manner.RUNNER_GONE, exit_code=None),
        duration_ms=_duration_ms(session, recorder),
        enqueue=enqueue,
    )
    logger.warning("Session %s was recovered: %s", session.pk, decision.reason)
    return decision.reason


def stop_processes(session: Session) -> None:
    """Only what this machine has started since its last boot, by pid and start time."""
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
        logger.error("Session %s: processes %s could not be stopped", session.pk, survivors)


def hear_again(session: Session, recorder: Recorder, facts: StreamFacts) -> None:
    """What the dead runner had heard, from the events that it stored."""
    for event in session.events.order_by("sequence").iterator():
        recorder.hear_again(event)
        if event.source == SessionEvent.Source.STREAM and isinstance(event.payload, dict):
            facts.observe(event.payload)


def _duration_ms(session: Session, recorder: Recorder) -> int | None:
    """Until its last sign of life: nobody saw the end."""
    signs = [moment for moment in (recorder.last_line_at, session.heartbeat_at) if moment]
    if session.started_at is None or not signs:
        return None
    return max(0, int((max(signs) - session.started_at).total_seconds() * 1000))
