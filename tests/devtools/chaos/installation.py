"""The processes of the scratch installation, kept alive as a service manager would.

Nothing here recovers a session: that is the worker's own business, at its start and by its
schedule. What is done is only what any machine does: whatever ended is started again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from escalation.rehearsal.chaos.evidence import DATABASE
from escalation.rehearsal.chaos.hosts import Host, kill_all
from escalation.rehearsal.chaos.left_behind import children
from escalation.rehearsal.chaos.record import SQLITE, RecordAway, opened
from escalation.rehearsal.chaos.website import Website
from escalation.rehearsal.own_postgres import OwnPostgres

WORKER, WEB = "queue worker", "web server"
LOOK_SECONDS = 0.5
NUDGE_SECONDS = 5.0
STOP_SECONDS = 30.0


def commands() -> dict[str, tuple[str, ...]]:
    """As a service manager is told to start them."""
    address = ("--host", settings.CLAUDEOPS_HOST, "--port", str(settings.CLAUDEOPS_PORT))
    patience = ("--timeout-graceful-shutdown", "2", "--log-level", "warning")
    return {
        WORKER: ("-m", "escalation.management", "worker"),
        WEB: ("-m", "uvicorn", "claudeops.asgi:application", *address, *patience),
    }


@dataclass(slots=True)
class Installation:
    state: Path
    website: Website
    log: Path
    """What the services say, kept off the screen."""
    others: tuple[Host, ...] = ()
    """Where several are played: the hosts of the workers. Here is the web server alone."""
    address: str = ""
    """Of the shared database, where there are several hosts."""
    postgres: OwnPostgres | None = None
    services: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    """Services of a host that is down: nobody starts them again for now."""
    one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    """For faults that would spoil what another one is looking at."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def record(self) -> str:
        return self.address or f"{SQLITE}{self.state / DATABASE}"

    @property
    def other_states(self) -> tuple[Path, ...]:
        return tuple(host.state for host in self.others)

    def start(self) -> None:
        workers = [host.service for host in self.others] or [WORKER]
        for name in (WEB, *workers):
            self._start_service(name)
        # Across hosts it is the real time until another host takes over that is of interest.
        works = [self._keep_alive] if self.others else [self._keep_alive, self._nudge_housekeeping]
        for work in works:
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

    def take_down(self, host: Host) -> None:
        """All that runs there is gone, and stays so."""
        self.away.add(host.service)
        kill_all(self.services[host.service].pid)

    def bring_back(self, host: Host) -> None:
        self.away.discard(host.service)

    def parts_of_the_queue(self) -> list[int]:
        """The processes that the worker's own guard looks after: pusher, monitor, workers."""
        guards = children(self.services[WORKER].pid)
        return [part for guard in guards for part in children(guard)]

    def _start_service(self, name: str) -> None:
        host = next((host for host in self.others if host.service == name), None)
        command = [sys.executable, *commands()[WORKER if host else name]]
        with self.log.open("ab") as log:
            self.services[name] = subprocess.Popen(
                host.wrapped(command) if host else command,
                cwd=settings.BASE_DIR,
                env=host.environment(os.environ) if host else None,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _keep_alive(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            for name, service in list(self.services.items()):
                if service.poll() is not None and name not in self.away:
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
            with contextlib.suppress(RecordAway), opened(self.record, patience=1) as ask:
                ask(
                    "UPDATE django_q_schedule SET next_run = datetime('now', '-1 second')"
                    " WHERE name = 'recovery'"
                )
