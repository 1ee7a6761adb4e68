"""Whether the process that runs a session still lives, and taking over from one that does not."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

from django.utils import timezone

from escalation.agent import boot_id, started_at
from escalation.run.heartbeat import this_runner
from sessions_app.models import Session

# A run on another host can only be judged by its silence.
FOREIGN_SILENCE = timedelta(minutes=10)
# A worker that lives but has lost this run beats no more for it.
LOCAL_SILENCE = timedelta(minutes=15)


def orphans() -> list[Session]:
    running = Session.objects.filter(status=Session.Status.RUNNING).select_related("cycle__watch")
    return [session for session in running if not runner_lives(session)]


def runner_lives(session: Session) -> bool:
    seen = session.heartbeat_at or session.started_at or session.created_at
    silent = timezone.now() - seen
    if session.host != socket.gethostname():
        return silent < FOREIGN_SILENCE
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
    ).update(**_recoverer(), heartbeat_at=timezone.now())
    return bool(taken)


def let_go(session: Session) -> None:
    """A recovery that failed must not look like a run that lives."""
    Session.objects.filter(pk=session.pk, status=Session.Status.RUNNING).update(
        runner_pid=None, runner_started=None
    )


def _recoverer() -> dict[str, Any]:
    """This process, but not this host: where a session ran decides where it can be resumed."""
    return {name: value for name, value in this_runner().items() if name != "host"}
