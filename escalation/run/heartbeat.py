"""Signs of life of a run: who runs it, as which process, and when it was last seen."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

from django.db import OperationalError
from django.utils import timezone

from escalation.agent import ProcessId, boot_id, started_at
from sessions_app.models import Session

BEAT_SECONDS = 5.0


def this_runner() -> dict[str, Any]:
    """Who runs a session, so that anybody can find out later whether it still lives."""
    return {
        "host": socket.gethostname(),
        "runner_pid": os.getpid(),
        "runner_started": started_at(os.getpid()),
        "boot_id": boot_id(),
    }


class Heartbeat:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._next_beat = time.monotonic() + BEAT_SECONDS
        self._unrecorded: dict[str, int] = {}

    def started(self, cli: ProcessId) -> None:
        """Recorded at once: from here on there is a process to be found after a crash.

        Where the database will not take it, the next beats try again; until then the run's mark in
        the environment of its processes is what they can be found by.
        """
        self._unrecorded = {"cli_pid": cli.pid, "cli_started": cli.started}
        self._store()

    def beat(self) -> None:
        """Now and then; a locked database only makes the next beat the first one seen."""
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT_SECONDS
        self._store()

    def _store(self) -> None:
        with contextlib.suppress(OperationalError):
            Session.objects.filter(pk=self._session.pk).update(
                heartbeat_at=timezone.now(), **self._unrecorded
            )
            self._unrecorded = {}
