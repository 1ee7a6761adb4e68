"""One CLI process: start it, read both its outputs to the end, stop it when it must stop."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

from escalation.cli.stream import LineSplitter

READ_BYTES = 256 * 1024
TICK_SECONDS = 0.1
# Time for the CLI to end its tools and write its transcript before it is killed.
GRACE_SECONDS = 5.0
# A process may stay a while after its last word; the result counts all the same.
LINGER_SECONDS = 20.0
# A tool's leftover child can hold the pipes open after the CLI is gone.
DRAIN_SECONDS = 1.0


class Ending(StrEnum):
    EXITED = "exited"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"
    LINGERED = "lingered"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    exit_code: int
    ending: Ending
    why: str = ""
    """Who asked for the stop, when it was stopped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watcher:
    """What the process reports to while it runs."""

    on_stdout: Callable[[bytes], None]
    on_stderr: Callable[[bytes], None]
    has_result: Callable[[], bool]
    on_tick: Callable[[], str]
    """Called about ten times a second; a non-empty answer is the reason to stop."""


def run_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    prompt: str,
    timeout_seconds: float,
    watcher: Watcher,
) -> Ended:
    """Raise OSError when the process cannot be started; otherwise it has ended on return."""
    with tempfile.TemporaryFile() as stdin:
        # A file, not a pipe: a prompt of any size cannot block against unread output.
        stdin.write(prompt.encode("utf-8", "replace"))
        stdin.seek(0)
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        ending, why = _read_until_end(process, time.monotonic() + timeout_seconds, watcher)
    finally:
        # Whatever interrupts us, even the queue's own timeout, leaves no process behind.
        stop_group(process)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return Ended(exit_code=process.returncode, ending=ending, why=why)


def stop_group(process: subprocess.Popen[bytes], reader: _Reader | None = None) -> None:
    """Ask, wait, then kill the whole group.

    With a reader its last words are taken in meanwhile: a process with a full pipe cannot end.
    """
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        give_up = time.monotonic() + GRACE_SECONDS
        while process.poll() is None and time.monotonic() < give_up:
            if reader is not None and reader.is_open:
                reader.read(TICK_SECONDS)
            else:
                time.sleep(TICK_SECONDS)
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _read_until_end(
    process: subprocess.Popen[bytes], deadline: float, watcher: Watcher
) -> tuple[Ending, str]:
    """Read on until the pipes close, or until there is a reason to stop waiting."""
    assert process.stdout is not None
    assert process.stderr is not None
    reader = _Reader(process.stdout, process.stderr, watcher)
    gone_since: float | None = None
    while reader.is_open:
        reader.read(TICK_SECONDS)
        now = time.monotonic()
        if reason := watcher.on_tick():
            return _drained(process, reader, Ending.STOPPED, reason)
        if now > deadline:
            return _drained(process, reader, Ending.TIMED_OUT)
        if watcher.has_result() and now - reader.last_read > LINGER_SECONDS:
            return _drained(process, reader, Ending.LINGERED)
        if process.poll() is not None:
            gone_since = gone_since or now
            if now - gone_since > DRAIN_SECONDS:
                break
    reader.finish()
    _wait(process, deadline)
    return Ending.EXITED, ""


def _drained(
    process: subprocess.Popen[bytes], reader: _Reader, ending: Ending, why: str = ""
) -> tuple[Ending, str]:
    """Stop the process and read its last words: they may hold the cost."""
    stop_group(process, reader)
    until = time.monotonic() + DRAIN_SECONDS
    while reader.is_open and time.monotonic() < until:
        reader.read(TICK_SECONDS)
    reader.finish()
    return ending, why


def _wait(process: subprocess.Popen[bytes], deadline: float) -> None:
    """Both pipes are closed, so the end is near; the caller kills what does not come to it."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, min(GRACE_SECONDS, deadline - time.monotonic())))


class _Reader:
    """Both pipes together, so that neither can fill up while the other is waited for."""

    def __init__(self, stdout: IO[bytes], stderr: IO[bytes], watcher: Watcher) -> None:
        self._selector = selectors.DefaultSelector()
        self._splitters = []
        self.last_read = time.monotonic()
        for pipe, receive in ((stdout, watcher.on_stdout), (stderr, watcher.on_stderr)):
            os.set_blocking(pipe.fileno(), False)
            splitter = LineSplitter()
            self._splitters.append((splitter, receive))
            self._selector.register(pipe, selectors.EVENT_READ, (splitter, receive))

    @property
    def is_open(self) -> bool:
        return bool(self._selector.get_map())

    def read(self, timeout: float) -> None:
        for key, _mask in self._selector.select(timeout):
            data = os.read(key.fd, READ_BYTES)
            if not data:
                self._selector.unregister(key.fileobj)
                continue
            self.last_read = time.monotonic()
            splitter, receive = key.data
            for line in splitter.feed(data):
                receive(line)

    def finish(self) -> None:
        """Hand on what stands after the last line end."""
        for splitter, receive in self._splitters:
            for line in splitter.rest():
                receive(line)
        self._selector.close()
