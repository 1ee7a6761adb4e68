"""The processes of the scratch installation, kept alive as a service manager would.

Nothing here recovers a session: that is the worker's own business, at its start and by its
schedule. What is done is only what any machine does: whatever ended is started again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from escalation.rehearsal.chaos.evidence import DATABASE
from escalation.rehearsal.chaos.left_behind import children
from escalation.rehearsal.chaos.website import Website

WORKER, WEB = "queue worker", "web server"
LOOK_SECONDS = 0.5
NUDGE_SECONDS = 5.0
STOP_SECONDS = 30.0


def commands() -> dict[str, tuple[str, ...]]:
    """As a service manager is told to start them."""
    address = ("--host", settings.CLAUDEOPS_HOST, "--port", str(settings.CLAUDEOPS_PORT))
    patience = ("--timeout-graceful-shutdown", "2", "--log-level", "warning")
    return {
        WORKER: ("manage.py", "worker"),
        WEB: ("-m", "uvicorn", "claudeops.asgi:application", *address, *patience),
    }


@dataclass(slots=True)
class Installation:
    state: Path
    website: Website
    log: Path
    """What the services say, kept off the screen."""
    services: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    """For faults that would spoil what another one is looking at."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        for name in commands():
            self._start_service(name)
        for work in (self._keep_alive, self._nudge_housekeeping):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for service in self.services.values():
            service.terminate()  # the main process alone: django-q2 hangs when its group is told
        for name, service in self.services.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                service.wait(STOP_SECONDS)
            self.kill(name)
            service.wait()

    def kill(self, name: str) -> None:
        """Every process of a service at once, as when the machine runs out of memory."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.services[name].pid, signal.SIGKILL)

    def parts_of_the_queue(self) -> list[int]:
        """The processes that the worker's own guard looks after: pusher, monitor, workers."""
        guards = children(self.services[WORKER].pid)
        return [part for guard in guards for part in children(guard)]

    def _start_service(self, name: str) -> None:
        with self.log.open("ab") as log:
            self.services[name] = subprocess.Popen(
                [sys.executable, *commands()[name]],
                cwd=settings.BASE_DIR,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _keep_alive(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            for name, service in list(self.services.items()):
                if service.poll() is not None:
                    # As systemd does: what is left of the unit goes before it is started again.
                    self.kill(name)
                    self._start_service(name)

    def _nudge_housekeeping(self) -> None:
        """Make the recovery due now, again and again, so that a round need not wait a minute.

        This is no help to what is checked: the worker's own scheduler still has to look, to queue
        the task and to run it, as it does in every installation. It only finds it due a few
        seconds earlier than it would by the clock.
        """
        while not self._stop.wait(NUDGE_SECONDS):
            with (
                contextlib.suppress(sqlite3.OperationalError),
                closing(sqlite3.connect(self.state / DATABASE, timeout=1)) as record,
                record,
            ):
                record.execute(
                    "UPDATE django_q_schedule SET next_run = datetime('now', '-1 second')"
                    " WHERE name = 'recovery'"
                )
