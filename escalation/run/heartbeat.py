"""Signs of life of a run: who runs it, as which process, and when it was last seen."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.db import OperationalError, connection

from escalation.agent import ProcessId, StopAsked, boot_id, started_at
from sessions_app.models import Session
from sessions_app.models.clock import shared_now

BEAT_SECONDS = 5.0
# Shorter than the silence after which another host takes over (`recovery.runners`).
LEASE_SECONDS = 30.0
TAKEN_OVER = "another process has taken this run over"
CUT_OFF = "the database has not answered for so long that another host may take this run over"


def this_runner() -> dict[str, Any]:
    """Who runs a session, so that anybody can find out later whether it still lives."""
    return {
        "host": socket.gethostname(),
        "runner_pid": os.getpid(),
        "runner_started": started_at(os.getpid()),
        "boot_id": boot_id(),
    }


class Heartbeat:
    def __init__(
        self, session: Session, spent: Callable[[], Decimal | None] = lambda: None
    ) -> None:
        self._session = session
        self._spent = spent
        self._next_beat = time.monotonic() + BEAT_SECONDS
        self._unrecorded: dict[str, int] = {}
        self._last_stored = time.monotonic()
        self._taken_over = False

    def started(self, cli: ProcessId) -> None:
        """Recorded at once: from here on there is a process to be found after a crash.

        Where the database will not take it, the next beats try again; until then the run's mark in
        the environment of its processes is what they can be found by.
        """
        self._unrecorded = {"cli_pid": cli.pid, "cli_started": cli.started}
        self._store()

    def beat(self) -> bool:
        """Now and then, and whether it was: a locked database only makes the next beat the first
        one seen."""
        if time.monotonic() < self._next_beat:
            return False
        self._next_beat = time.monotonic() + BEAT_SECONDS
        self._store()
        return True

    @property
    def lost(self) -> StopAsked | None:
        """Why the run must stop: somebody else has it, or will have it before we can say a word.

        On one host a runner that lives is seen to live. Across hosts it is its sign of life that
        counts: without one for a while, another host goes on with the work, and two must not.
        """
        if self._taken_over:
            return StopAsked(Session.StopCause.WORKER, TAKEN_OVER)
        silent = time.monotonic() - self._last_stored
        if connection.vendor == "postgresql" and silent > LEASE_SECONDS:
            return StopAsked(Session.StopCause.WORKER, CUT_OFF)
        return None

    def _store(self) -> None:
        own = this_runner()
        with contextlib.suppress(OperationalError):
            ours = Session.objects.filter(
                pk=self._session.pk,
                runner_pid=own["runner_pid"],
                runner_started=own["runner_started"],
            )
            stored = ours.update(
                heartbeat_at=shared_now(), spent_so_far_usd=self._spent(), **self._unrecorded
            )
            self._taken_over = not stored
            self._last_stored = time.monotonic()
            self._unrecorded = {}
