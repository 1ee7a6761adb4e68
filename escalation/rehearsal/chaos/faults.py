"""What can go wrong, done on purpose and for real."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from escalation.agent import process_id
from escalation.host.children import Child, start_worker
from sessions_app.models import Cycle, Session

READY_SECONDS = 20.0


@dataclass(slots=True)
class Installation:
    """The processes that chaos plays with."""

    worker: Child

    @classmethod
    def start(cls) -> Installation:
        return cls(start_worker())

    def restart_what_died(self) -> None:
        if self.worker.has_ended:
            self.worker = start_worker()


Fault = Callable[[Installation, Cycle, random.Random], None]


def nothing(installation: Installation, cycle: Cycle, chance: random.Random) -> None:
    """A round without a fault, for comparison."""


def kill_cli(installation: Installation, cycle: Cycle, chance: random.Random) -> None:
    for session in cycle.sessions.filter(status=Session.Status.RUNNING):
        if session.cli_pid is None:
            continue
        process = process_id(session.cli_pid)
        if process is not None and process.started == session.cli_started:
            process.send(signal.SIGKILL)


def kill_worker(installation: Installation, cycle: Cycle, chance: random.Random) -> None:
    """The one process that runs the tier; the cluster around it lives on."""
    for session in cycle.sessions.filter(status=Session.Status.RUNNING):
        if session.runner_pid is None:
            continue
        process = process_id(session.runner_pid)
        if process is not None and process.started == session.runner_started:
            process.send(signal.SIGKILL)


def kill_cluster(installation: Installation, cycle: Cycle, chance: random.Random) -> None:
    """All processes of the worker at once, as when the machine runs out of memory."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(installation.worker.process.pid, signal.SIGKILL)
    installation.worker.process.wait()


def lock_database(installation: Installation, cycle: Cycle, chance: random.Random) -> None:
    """Another writer holds the database for a while."""
    seconds = chance.uniform(0.5, 4.0)
    path = Path(settings.DATABASES["default"]["NAME"])
    held = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(path, timeout=30)
        connection.execute("BEGIN IMMEDIATE")
        held.set()
        time.sleep(seconds)
        connection.rollback()
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    holder.join()


FAULTS: dict[str, Fault] = {
    "nothing": nothing,
    "kill the CLI": kill_cli,
    "kill a worker": kill_worker,
    "kill the cluster": kill_cluster,
    "lock the database": lock_database,
}
