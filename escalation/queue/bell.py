"""The bell: whoever puts a task into the queue rings it, and a sleeping worker wakes.

A ring may get lost (a full disk, a server that restarts, a process that dies between commit and
ring): nothing but time is lost with it, because the worker also looks by itself now and then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from django.conf import settings
from django.db import connections


class Bell(Protocol):
    def ring_at_commit(self) -> None:
        """Wake every listener once the caller's transaction is committed, never if it is not."""

    def listen(self) -> None:
        """From now on no ring is missed, also one that comes before `wait`."""

    def wait(self, seconds: float) -> bool:
        """Sleep until the bell rings, at most so long. True: it rang."""


def bell_for(database: str) -> Bell:
    if connections[database].vendor == "postgresql":
        # Only here: without PostgreSQL its driver need not be installed.
        from escalation.queue.notify_bell import NotifyBell

        return NotifyBell(database)
    from escalation.queue.fifo_bell import FifoBell

    return FifoBell(Path(settings.CLAUDEOPS_STATE_DIR) / "bell", database)
