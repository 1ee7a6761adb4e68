"""The processes of the scratch installation, kept alive as a service manager would.

Nothing here recovers a session: the worker does that. Ended processes are only restarted.
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

from tests.devtools.chaos.evidence import DATABASE
from tests.devtools.chaos.hosts import Host, kill_all
from tests.devtools.chaos.leftovers import children
from tests.devtools.chaos.outside import Outside
from tests.devtools.chaos.record import SQLITE, RecordAway, opened
from tests.devtools.chaos.website import Website
from tests.devtools.postgres import OwnPostgres

WORKER, WEB = "queue worker", "web server"
LOOK_SECONDS = 0.5
NUDGE_SECONDS = 5.0
STOP_SECONDS = 30.0


def commands() -> dict[str, tuple[str, ...]]:
    """The command lines, as a service manager starts them."""
    address = ("--host", settings.CLAUDEOPS_HOST, "--port", str(settings.CLAUDEOPS_PORT))
    timeout = ("--timeout-graceful-shutdown", "2", "--log-level", "warning")
    return {
        WORKER: ("-m", "escalation.management", "worker"),
        WEB: ("-m", "uvicorn", "claudeops.asgi:application", *address, *timeout),
    }


@dataclass(slots=True)
class Installation:
    state: Path
    website: Website
    log: Path
    """The log file of the services."""
    others: tuple[Host, ...] = ()
    """The hosts of the workers, if there are several; then only the web server runs here."""
    address: str = ""
    """The address of the shared database of several hosts."""
    postgres: OwnPostgres | None = None
    outside: Outside | None = None
    """Alerts and the target of a probe; None with several hosts."""
    services: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    """Services of a host that is down, which are not restarted."""
    installation_lock: threading.Lock = field(default_factory=threading.Lock)
    """Serialises faults that would disturb each other."""
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
        # With several hosts the real time until a take-over is measured.
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
        """Kill every process of a service at once, as an out-of-memory killer would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.services[name].pid, signal.SIGKILL)

    def take_down(self, host: Host) -> None:
        """Kill everything on a host, without a restart."""
        self.away.add(host.service)
        kill_all(self.services[host.service].pid)

    def bring_back(self, host: Host) -> None:
        self.away.discard(host.service)

    def parts_of_the_queue(self) -> list[int]:
        """Return the processes of the cluster of the worker: pusher, monitor, workers."""
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
                    # As systemd does, stop the rest of the unit before the restart.
                    self.kill(name)
                    self._start_service(name)

    def _nudge_housekeeping(self) -> None:
        """Make the recovery task due repeatedly, so that an experiment need not wait a minute.

        The scheduler of the worker still has to find, queue and run the task.
        """
        while not self._stop.wait(NUDGE_SECONDS):
            with contextlib.suppress(RecordAway), opened(self.record, timeout=1) as ask:
                ask(
                    "UPDATE django_q_schedule SET next_run = datetime('now', '-1 second')"
                    " WHERE name = 'recovery'"
                )
