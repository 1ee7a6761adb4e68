"""The web server and the queue worker, as children of one parent that stops both cleanly.

Each child gets a session of its own: a Ctrl-C in the terminal then reaches the parent alone.
django-q2 never ends when its whole process group is signalled, so the parent signals the main
process of each child, and the group only to kill what did not stop.

Nothing of Django is imported here: the parent that only waits is a small process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
STOP_PATIENCE_SECONDS = 20.0
WEB_PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.5
# One that ends so soon after its start, so often in a row, will not stay for longer next time.
SHORT_LIFE_SECONDS = 10.0
SHORT_LIVES = 3


@dataclass(slots=True)
class Child:
    name: str
    process: subprocess.Popen[bytes]
    arguments: tuple[str, ...] = ()
    log: Path | None = None
    """Where it writes; None: to the parent's own output."""
    born: float = field(default_factory=time.monotonic)
    short_lives: int = 0

    @classmethod
    def start(cls, name: str, *arguments: str, log: Path | None = None) -> Child:
        return cls(name, _started(arguments, log), arguments, log)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def start_again(self) -> bool:
        """False: it has died at its start too often, and is left alone."""
        lived_shortly = time.monotonic() - self.born < SHORT_LIFE_SECONDS
        self.short_lives = self.short_lives + 1 if lived_shortly else 0
        if self.short_lives >= SHORT_LIVES:
            return False
        self._end_group()
        self.process, self.born = _started(self.arguments, self.log), time.monotonic()
        return True

    def ask_to_stop(self) -> None:
        if not self.has_ended:
            self.process.send_signal(signal.SIGTERM)

    def make_stop(self, deadline: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.1, deadline - time.monotonic()))
        self._end_group()
        self.process.wait()

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def _started(arguments: tuple[str, ...], log: Path | None) -> subprocess.Popen[bytes]:
    with log.open("ab") if log else contextlib.nullcontext() as out:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=PROJECT,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def start_web_server(host: str, port: int, log: Path | None = None) -> Child:
    return Child.start("web server", "-m", "escalation.host.web_server", host, str(port), log=log)


def start_worker(log: Path | None = None) -> Child:
    return Child.start("queue worker", "-m", "escalation.management", "worker", log=log)


def stop_children(children: list[Child]) -> None:
    """All are told first; the worker ends its running tiers by itself."""
    for child in children:
        child.ask_to_stop()
    deadline = time.monotonic() + STOP_PATIENCE_SECONDS
    for child in children:
        child.make_stop(deadline)


def wait_for_web(
    children: list[Child], host: str, port: int, stop_asked: Callable[[], bool] = lambda: False
) -> bool:
    """True once the web server takes connections."""
    reachable = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104 (compared, not bound)
    give_up = time.monotonic() + WEB_PATIENCE_SECONDS
    while time.monotonic() < give_up and not stop_asked():
        if any(child.has_ended for child in children):
            return False
        try:
            socket.create_connection((reachable, port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def first_to_end(children: list[Child], stop_asked: Callable[[], bool]) -> Child | None:
    """Wait until a child ends by itself; None: a stop was asked for before."""
    with contextlib.ExitStack() as open_until_the_end:
        ends = select.poll()
        for child in children:
            # Readable when the process ends; one that has ended already is so from the start.
            descriptor = os.pidfd_open(child.process.pid)
            open_until_the_end.callback(os.close, descriptor)
            ends.register(descriptor, select.POLLIN)
        while not stop_asked():
            for child in children:
                if child.has_ended:
                    return child
            ends.poll(LOOK_SECONDS * 1000)
    return None
