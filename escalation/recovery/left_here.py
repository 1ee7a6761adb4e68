"""What is left on this host of runs that are over, or that another host goes on with.

A recovery elsewhere ends a run in the record, and can neither stop a process here nor remove a
file. So every worker looks at its own host, more often than the silence after which others take
over: a CLI whose runner died is stopped before somebody else goes on with its work.
"""

from __future__ import annotations

import logging
import socket
import time
from pathlib import Path

from django.conf import settings

from escalation.recovery.recover import stop_processes
from escalation.recovery.runners import runner_lives
from escalation.run import directory
from sessions_app.models import Session

logger = logging.getLogger(__name__)

YOUNG_SECONDS = 10.0
"""A run that begins or ends at this very moment is left to its runner."""


def sweep() -> None:
    """Stop what nobody here reads any more, and remove what is over."""
    numbers = _old_enough()
    for session in Session.objects.filter(pk__in=numbers) if numbers else ():
        is_here = session.host == socket.gethostname()
        if session.status == Session.Status.RUNNING and is_here:
            if not runner_lives(session):
                stop_processes(session)
        elif session.status != Session.Status.QUEUED:
            _clear_away(session)


def _clear_away(session: Session) -> None:
    logger.warning("Session %s is over or runs elsewhere: what it left here goes", session.pk)
    stop_processes(session)
    directory.remove(session)


def _old_enough() -> list[int]:
    before = time.time() - YOUNG_SECONDS
    found = (Path(settings.CLAUDEOPS_STATE_DIR) / "runs").glob("session-*")
    return [
        int(path.name.removeprefix("session-"))
        for path in found
        if path.name.removeprefix("session-").isdigit() and path.stat().st_mtime < before
    ]
