"""One command as a process: started in its room or on the host, watched, and surely ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO

from escalation.agent import ProcessId, family, process_id
from escalation.rooms.host_command import HostCommand
from escalation.rooms.limits import CommandGroup, Limits
from escalation.rooms.tool_request import ToolRequest
from escalation.rooms.tool_room import ENTERED

LOOK_SECONDS = 1.0
GRACE_SECONDS = 2.0
LONGEST_REPORT = 16 * 1024
# Ours is narrower; what an agent writes is for the services around it.
ORDINARY_UMASK = 0o022
PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    exit_code: int
    entered: bool
    """Whether the command's shell came to life at all."""
    directory: str = ""
    """Where it ended, if it ended well."""
    ended_because: str = ""
    """Why we ended it, in words for the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How to start a command, once its descriptors have numbers."""

    argv: Callable[[int, int], Sequence[str]]
    """From the numbers of the descriptors for the command's text and for the shell's report."""
    environment: Mapping[str, str]
    cwd: str
    group: CommandGroup | None = None
    on_host: HostCommand | None = None

    def inside(self, group: CommandGroup) -> Start:
        return replace(self, group=group)


def run_command(
    start: Start,
    command: str,
    request: ToolRequest,
    *,
    connection: socket.socket,
    stopping: int,
    limits: Limits,
) -> Outcome:
    """Raise OSError where it cannot be started; otherwise it has ended on return.

    The calling thread must stay until then: a room dies with the thread that started it.
    """
    with _text_file(command) as text, _pipe() as (report, reporting):
        group = start.group
        argv = start.argv(text, reporting.fileno())
        process = subprocess.Popen(
            group.entering(argv) if group else argv,
            stdin=subprocess.DEVNULL,
            stdout=request.stdout,
            stderr=request.stderr,
            env=dict(start.environment),
            cwd=start.cwd,
            pass_fds=(text, reporting.fileno()),
            start_new_session=True,
            umask=ORDINARY_UMASK,
        )
        reporting.close()
        watch = _Watch(process, start.on_host, request, limits)
        try:
            watch.until_end(connection, stopping)
        finally:
            watch.end()
        return _outcome(process.returncode, watch.ended_because, _read_report(report))


class _Watch:
    """A started command until it has ended, by itself or by us."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        on_host: HostCommand | None,
        request: ToolRequest,
        limits: Limits,
    ) -> None:
        self._process = process
        self._on_host = on_host
        self._root = process_id(process.pid)
        self._outputs = [
            (descriptor, os.fstat(descriptor).st_size + limits.output_bytes)
            for descriptor in (request.stdout, request.stderr)
            if stat.S_ISREG(os.fstat(descriptor).st_mode)
        ]
        self._deadline: float | None = None
        self._longest = limits.longest_seconds
        self._began = time.monotonic()
        self.ended_because = ""
        if on_host:
            on_host.started(process)

    def until_end(self, connection: socket.socket, stopping: int) -> None:
        ended = os.pidfd_open(self._process.pid)
        poll = select.poll()
        for descriptor in (ended, connection.fileno(), stopping):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = {descriptor for descriptor, _event in poll.poll(self._patience_ms())}
                if ended in ready:
                    return
                if stopping in ready:
                    self.ended_because = "The run is over."
                    return
                if connection.fileno() in ready and not self._hear(connection):
                    self.ended_because = "The CLI gave the command up."
                    return
                if self._is_over_time() or self._prints_too_much() or self._runs_too_long():
                    return
        finally:
            os.close(ended)

    def end(self) -> None:
        if self._on_host:
            self._process.poll()
            self._on_host.end_what_is_left()
        if self._process.poll() is None:
            self._process.kill()  # the room's first process dies with it, and all others with that
        self._process.wait()

    def _hear(self, connection: socket.socket) -> bool:
        """Pass signals on; False: the client is gone."""
        try:
            numbers = connection.recv(64)
        except OSError:
            return False
        for number in PASSED_ON & set(numbers):
            for process in self._family():
                process.send(signal.Signals(number))
            self._deadline = self._deadline or time.monotonic() + GRACE_SECONDS
        return bool(numbers)

    def _family(self) -> set[ProcessId]:
        """All but bubblewrap itself: ended by a signal it would not let the others end."""
        if self._root is None:
            return set()
        found = family(self._root, [self._root], "")
        return found if self._on_host else found - {self._root}

    def _patience_ms(self) -> float:
        left = LOOK_SECONDS if self._deadline is None else self._deadline - time.monotonic()
        return max(0.0, min(LOOK_SECONDS, left)) * 1000

    def _is_over_time(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _runs_too_long(self) -> bool:
        if time.monotonic() - self._began > self._longest:
            minutes = f"{self._longest / 60:g} minutes"
            self.ended_because = f"It ran for more than {minutes} and was ended. Do it in parts."
        return bool(self.ended_because)

    def _prints_too_much(self) -> bool:
        """Into a file of the CLI's; a pipe would make the command wait."""
        if any(os.fstat(descriptor).st_size > most for descriptor, most in self._outputs):
            self.ended_because = "It printed too much and was ended. Print less, or count."
        return bool(self.ended_because)


def _outcome(returncode: int, ended_because: str, report: bytes) -> Outcome:
    exit_code = returncode if returncode >= 0 else 128 - returncode
    entered, _sep, directory = report.partition(ENTERED)
    path = os.fsdecode(directory.removesuffix(b"\n"))
    return Outcome(
        exit_code=exit_code or (137 if ended_because else 0),
        entered=report.startswith(ENTERED),
        directory=path if path.startswith("/") and not entered else "",
        ended_because=ended_because,
    )


@contextlib.contextmanager
def _text_file(command: str) -> Iterator[int]:
    """The command as a file that nobody can change any more."""
    descriptor = os.memfd_create("command", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        data = memoryview(command.encode())
        while data:
            data = data[os.write(descriptor, data) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, IO[bytes]]]:
    """The writing end as an object: its number may be another thread's once it is closed."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    with open(reading, "rb", buffering=0), open(writing, "wb", buffering=0) as writer:
        yield reading, writer


def _read_report(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        return os.read(descriptor, LONGEST_REPORT)
    return b""
