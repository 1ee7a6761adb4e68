"""Whether the process that runs a session still lives, and taking over from one that does not."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

from escalation.agent import boot_id, started_at
from escalation.run.heartbeat import this_runner
from sessions_app.models import Session
from sessions_app.models.clock import awake_since, shared_now

# A run on another host can only be judged by its silence. Its runner stops it before
# (`run.heartbeat.LEASE_SECONDS`), and with a recovery every minute it goes on within two.
FOREIGN_SILENCE = timedelta(seconds=45)
# A worker that lives but has lost this run beats no more for it.
LOCAL_SILENCE = timedelta(minutes=15)


def orphans() -> list[Session]:
    running = Session.objects.filter(status=Session.Status.RUNNING).select_related("cycle__watch")
    return [session for session in running if not runner_lives(session)]


def runner_lives(session: Session) -> bool:
    seen = session.heartbeat_at or session.started_at or session.created_at
    if session.host != socket.gethostname():
        # While the database was away, nobody could be heard.
        return shared_now() - max(seen, awake_since() or seen) < FOREIGN_SILENCE
    silent = shared_now() - seen
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
