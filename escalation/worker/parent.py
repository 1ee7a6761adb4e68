"""The parent of the web server and the worker: `python -m escalation.worker.parent DESCRIPTOR`.

`claudeops up` replaces itself by this process after its preparations: a parent that only waits does
not need Django in memory. Its instructions come through a pipe, because any user can read the
arguments of a process, and the text to show may contain a password.

Each child has its own process session, so that Ctrl-C reaches only the parent. django-q2 hangs if
its whole process group gets a signal: the parent signals the main process of each child, and kills
the group only if the child does not stop.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

PROJECT = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_SECONDS = 20.0
WEB_TIMEOUT_SECONDS = 30.0
LOOK_SECONDS = 0.5
# A child that ends this soon, this often in a row, is not started again.
SHORT_LIFE_SECONDS = 10.0
SHORT_LIVES = 3


@dataclass(slots=True)
class Child:
    name: str
    process: subprocess.Popen[bytes]
    arguments: tuple[str, ...] = ()
    log: Path | None = None
    """The file for its output; None: the output of the parent."""
    born: float = field(default_factory=time.monotonic)
    short_lives: int = 0

    @classmethod
    def start(cls, name: str, *arguments: str, log: Path | None = None) -> Child:
        return cls(name, _started(arguments, log), arguments, log)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def start_again(self) -> bool:
        """Starts the child again. Returns False if it has died at its start too often."""
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
    return Child.start("web server", "-m", "escalation.worker.web_server", host, str(port), log=log)


def start_worker(log: Path | None = None) -> Child:
    return Child.start("queue worker", "-m", "escalation.management", "worker", log=log)


def stop_children(children: list[Child]) -> None:
    """Asks all children to stop, then waits for each. The worker stops its sessions."""
    for child in children:
        child.ask_to_stop()
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    for child in children:
        child.make_stop(deadline)


def wait_for_web(
    children: list[Child], host: str, port: int, stop_asked: Callable[[], bool] = lambda: False
) -> bool:
    """Returns True when the web server accepts connections."""
    reachable = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104 (compared, not bound)
    give_up = time.monotonic() + WEB_TIMEOUT_SECONDS
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
    """Waits until a child ends. Returns None if a stop was requested before."""
    with contextlib.ExitStack() as open_until_the_end:
        ends = select.poll()
        for child in children:
            # Readable once the process has ended.
            descriptor = os.pidfd_open(child.process.pid)
            open_until_the_end.callback(os.close, descriptor)
            ends.register(descriptor, select.POLLIN)
        while not stop_asked():
            for child in children:
                if child.has_ended:
                    return child
            ends.poll(LOOK_SECONDS * 1000)
    return None


EXIT_FAILED = 2
LAST_LINES = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Instructions:
    host: str
    port: int
    screen: list[str]
    """Lines to show when the web server answers."""
    log: str = ""
    """The log file of web server and worker; empty: they write to the terminal."""


def become_parent(instructions: Instructions) -> NoReturn:
    """Replaces this process by the parent."""
    reading, writing = os.pipe()
    os.write(writing, json.dumps(asdict(instructions)).encode())
    os.close(writing)
    os.set_inheritable(reading, True)
    os.chdir(PROJECT)
    sys.stdout.flush()
    command = [sys.executable, "-m", "escalation.worker.parent", str(reading)]
    os.execv(sys.executable, command)  # noqa: S606 (our own interpreter)


def main(instructions: Instructions) -> None:
    stop_asked = _listen_for_stop()
    log = Path(instructions.log) if instructions.log else None
    children = [start_web_server(instructions.host, instructions.port, log)]
    problem = ""
    try:
        # The worker starts afterwards: started together, both would take longer.
        if wait_for_web(children, instructions.host, instructions.port, lambda: bool(stop_asked)):
            _say(*instructions.screen)
        children.append(start_worker(log))
        problem = _watch_over(children, stop_asked)
    finally:
        _say("Stopping the web server and the worker …")
        stop_children(children)
    if problem:
        _say(problem, *_last_lines(log))
        sys.exit(EXIT_FAILED)
    _say("Stopped. Interrupted sessions continue at the next start.")


def _watch_over(children: list[Child], stop_asked: list[int]) -> str:
    """Restarts children that die. Returns why one cannot be restarted, or nothing after a stop."""
    while ended := first_to_end(children, lambda: bool(stop_asked)):
        code = ended.process.returncode
        if not ended.start_again():
            return f"The {ended.name} exits at every start (code {code}). The end of its log:"
        clock = time.strftime("%H:%M:%S")
        _say(f"{clock} The {ended.name} died (code {code}) and was restarted.")
    return ""


def _last_lines(log: Path | None) -> list[str]:
    if log is None:
        return ["(above)"]
    try:
        return log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    except OSError as error:
        return [str(error)]


def _say(*sentences: str) -> None:
    """Prints lines without buffering. The reader may be gone."""
    with contextlib.suppress(OSError):
        print(*sentences, sep="\n", flush=True)


def _listen_for_stop() -> list[int]:
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)

    # SIGHUP: a closed terminal must not leave the children running.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, remember)
    return received


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1])) as pipe:
        INSTRUCTIONS = Instructions(**json.load(pipe))
    main(INSTRUCTIONS)
