"""Whether the process that runs a session still lives, and taking over from one that does not."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from escalation.agent import boot_id, started_at
from escalation.run.heartbeat import this_runner
from sessions_app.models import Session
from sessions_app.models.clock import awake_since, shared_moment, shared_now

# A run on another host can only be judged by its silence. Its runner stops it before
# (`run.heartbeat.LEASE_SECONDS`), and every worker looks for silent ones with each beat of its own.
FOREIGN_SILENCE = timedelta(seconds=45)
# A worker that lives but has lost this run beats no more for it.
LOCAL_SILENCE = timedelta(minutes=15)


def orphans() -> list[Session]:
    """Every worker looks often: runs of other hosts that give signs of life are not even read."""
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
        # While the database was away, nobody could be heard.
        return now - max(seen, awake or seen) < FOREIGN_SILENCE
    silent = now - seen
    if session.boot_id != boot_id() or session.runner_pid is None or silent > LOCAL_SILENCE:
        return False
    return started_at(session.runner_pid) == session.runner_started


def take_over(session: Session) -> bool:
    """Become the session's runner, so that of two recoveries at once one does the work.

    Should this process die over it, the session is an orphan again.
    """
    taken = Session.objects.filter(
        pk=session.pk,
        status=Session.Status.RUNNING,
        runner_pid=session.runner_pid,
        runner_started=session.runner_started,
    ).update(**_recoverer(), heartbeat_at=shared_now())
    return bool(taken)


def let_go(session: Session) -> None:
    """A recovery that failed must not look like a run that lives."""
    Session.objects.filter(pk=session.pk, status=Session.Status.RUNNING).update(
        runner_pid=None, runner_started=None
    )


def _recoverer() -> dict[str, Any]:
    """This process, but not this host: where a session ran decides where it can be resumed."""
    return {name: value for name, value in this_runner().items() if name != "host"}
