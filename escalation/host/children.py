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
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
STOP_PATIENCE_SECONDS = 20.0
WEB_PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Child:
    name: str
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, *arguments: str) -> Child:
        command = [sys.executable, *arguments]
        return cls(name, subprocess.Popen(command, cwd=PROJECT, start_new_session=True))

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def ask_to_stop(self) -> None:
        if not self.has_ended:
            self.process.send_signal(signal.SIGTERM)

    def make_stop(self, deadline: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.1, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start_web_server(host: str, port: int) -> Child:
    return Child.start("web server", "-m", "escalation.host.web_server", host, str(port))


def start_worker() -> Child:
    return Child.start("queue worker", "manage.py", "worker")


def stop_children(children: list[Child]) -> None:
    """All are told first; the worker ends its running tiers by itself."""
    for child in children:
        child.ask_to_stop()
    deadline = time.monotonic() + STOP_PATIENCE_SECONDS
    for child in children:
        child.make_stop(deadline)


def port_is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def wait_for_web(children: list[Child], host: str, port: int) -> bool:
    """True once the web server takes connections."""
    reachable = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104 (compared, not bound)
    give_up = time.monotonic() + WEB_PATIENCE_SECONDS
    while time.monotonic() < give_up and not any(child.has_ended for child in children):
        try:
            socket.create_connection((reachable, port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False


def watch_over(children: list[Child], stop_asked: Callable[[], bool]) -> str:
    """Wait until a stop is asked for, or a child ends by itself; the sentence says which."""
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
                    return f"The {child.name} ended by itself (code {child.process.returncode})."
            ends.poll(LOOK_SECONDS * 1000)
    return ""
