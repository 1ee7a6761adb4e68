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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import IO

from escalation.agent.bell import Bell
from escalation.agent.process_tree import (
    ProcessId,
    family,
    process_id,
    recorded_tools,
    stop_family,
)
from escalation.agent.stream import LineSplitter

READ_BYTES = 256 * 1024
TICK_SECONDS = 0.1
# Time for the CLI to end its tools and write its transcript before it is killed.
GRACE_SECONDS = 5.0
# A process may stay a while after its last word; the result counts all the same.
LINGER_SECONDS = 20.0
# A tool's leftover child can hold the pipes open after the CLI is gone.
DRAIN_SECONDS = 1.0
ORDINARY_UMASK = 0o022


class Manner(StrEnum):
    """How a run came to its end."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    SILENT = "silent"
    STOPPED = "stopped"
    LINGERED = "lingered"
    RUNNER_GONE = "runner gone"
    """Whoever ran it is dead: nobody saw its end."""
    ABANDONED = "abandoned"
    """Whoever ran it was told to end at once."""
    CRASHED = "crashed"
    """Whoever ran it failed, by a fault of its own."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Somebody wants the run to stop: the cause for the program, the words for people."""

    cause: str
    words: str
    by_fault: bool = False
    """The run itself gave the reason: it has failed, and nobody cut it off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    manner: Manner
    exit_code: int | None
    """None when nobody was there to see it."""
    stop: StopAsked | None = None
    why: str = ""
    """In words, for a run that was abandoned or whose runner crashed."""
    silent_seconds: float = 0
    left_running: int = 0
    """Processes of tools that a run which ended by itself has left behind on purpose."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """By what the processes of a run are known, besides descent."""

    mark: str = ""
    """A word in the environment that every process of the run inherits."""
    tool_log: Path | None = None
    """Where the tool shell writes each tool down."""


def _never_silent() -> float:
    return float("inf")


def _none() -> float:
    return 0.0


def _ignore_start(process: ProcessId) -> None:
    """The start is of no interest to this watcher."""


def _ignore_stop() -> None:
    """The stop is of no interest to this watcher."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watcher:
    """What the process reports to while it runs."""

    on_stdout: Callable[[bytes], None]
    on_stderr: Callable[[bytes], None]
    has_result: Callable[[], bool]
    on_tick: Callable[[], StopAsked | None]
    """Called about ten times a second and when the bell is rung; an answer stops the run."""
    bell: Bell = field(default_factory=Bell)
    on_start: Callable[[ProcessId], None] = _ignore_start
    on_stopping: Callable[[], None] = _ignore_stop
    """Called before the family is asked to end; what is said afterwards may be about that."""
    silence_budget: Callable[[], float] = _never_silent
    """How many seconds the process may say nothing, as things stand now."""
    uncounted: Callable[[], float] = _none
    """How many seconds so far are not its own: it waited for a person."""


def run_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    prompt: str,
    timeout_seconds: float,
    watcher: Watcher,
    traces: Traces = Traces(),  # noqa: B008 (frozen: nothing can be shared by mistake)
) -> Ended:
    """Raise OSError when the process cannot be started; otherwise it has ended on return."""
    with watcher.bell.hung():
        process = _started(argv, environment, cwd, prompt)
        return _read_to_end(_Run(process, watcher, traces), timeout_seconds)


def _started(
    argv: Sequence[str], environment: Mapping[str, str], cwd: Path, prompt: str
) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as stdin:
        # A file, not a pipe: a prompt of any size cannot block against unread output.
        stdin.write(prompt.encode("utf-8", "replace"))
        stdin.seek(0)
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            # Ours is closed; what an agent writes for a service must be readable for it.
            umask=ORDINARY_UMASK,
        )


def _read_to_end(run: _Run, timeout_seconds: float) -> Ended:
    try:
        run.announce()
        ended = run.read_until_end(time.monotonic() + timeout_seconds)
        if run.exit_code != 0:
            # Killed or failed: its tools were left by a death, not on purpose.
            run.stop()
    except BaseException:
        # Whatever interrupts us, even the queue's own timeout, leaves no process behind.
        run.stop()
        raise
    finally:
        run.close()
    left = len(run.living()) if run.exit_code == 0 else 0
    return replace(ended, exit_code=run.exit_code, left_running=left)


class _Run:
    """A started process with its pipes and its family."""

    def __init__(self, process: subprocess.Popen[bytes], watcher: Watcher, traces: Traces) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._watcher = watcher
        self._traces = traces
        self._root = process_id(process.pid)
        self._reader = _Reader(process.stdout, process.stderr, watcher)

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def announce(self) -> None:
        if self._root is not None:
            self._watcher.on_start(self._root)

    def read_until_end(self, deadline: float) -> Ended:
        """Read on until the pipes close, or until there is a reason to stop waiting.

        The exit code is known only when the whole family has ended: the caller adds it.
        """
        gone_since: float | None = None
        while self._reader.is_open:
            self._reader.read(TICK_SECONDS)
            now = time.monotonic()
            if stopped := self._reason_to_stop(now, deadline):
                self.stop()
                self._drain()
                return stopped
            if self._process.poll() is not None:
                gone_since = gone_since or now
                if now - gone_since > DRAIN_SECONDS:
                    break
        self._reader.finish()
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Both pipes are closed, so the end is near.
            left = deadline + self._watcher.uncounted() - time.monotonic()
            self._process.wait(max(0.0, min(GRACE_SECONDS, left)))
        if self._process.poll() is None:
            self.stop()
        return Ended(manner=Manner.EXITED, exit_code=None)

    def stop(self) -> None:
        """End the whole family. Its last words are read meanwhile: they may hold the cost."""
        self._watcher.on_stopping()
        stop_family(self.living, GRACE_SECONDS, wait=self._read_or_sleep)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def living(self) -> set[ProcessId]:
        self._process.poll()
        log = self._traces.tool_log
        return family(self._root, recorded_tools(log) if log else [], self._traces.mark)

    def close(self) -> None:
        """The CLI's own helpers end with it; what a tool started on purpose is in its own group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _reason_to_stop(self, now: float, deadline: float) -> Ended | None:
        if stop := self._watcher.on_tick():
            return Ended(manner=Manner.STOPPED, exit_code=None, stop=stop)
        if now > deadline + self._watcher.uncounted():
            return Ended(manner=Manner.TIMED_OUT, exit_code=None)
        silent = now - self._reader.last_read
        if self._watcher.has_result():
            lingers = silent > LINGER_SECONDS
            return Ended(manner=Manner.LINGERED, exit_code=None) if lingers else None
        if silent > self._watcher.silence_budget():
            return Ended(manner=Manner.SILENT, exit_code=None, silent_seconds=silent)
        return None

    def _read_or_sleep(self, seconds: float) -> None:
        if self._reader.is_open:
            self._reader.read(seconds)
        else:
            time.sleep(seconds)

    def _drain(self) -> None:
        until = time.monotonic() + DRAIN_SECONDS
        while self._reader.is_open and time.monotonic() < until:
            self._reader.read(TICK_SECONDS)
        self._reader.finish()


class _Reader:
    """Both pipes together, so that neither can fill up while the other is waited for.

    The bell ends the wait, too; what has been printed by then is read in the same go.
    """

    def __init__(self, stdout: IO[bytes], stderr: IO[bytes], watcher: Watcher) -> None:
        self._selector = selectors.DefaultSelector()
        self._bell = watcher.bell
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._splitters = []
        self._pipes = {stdout, stderr}
        self.last_read = time.monotonic()
        for pipe, receive in ((stdout, watcher.on_stdout), (stderr, watcher.on_stderr)):
            os.set_blocking(pipe.fileno(), False)
            splitter = LineSplitter()
            self._splitters.append((splitter, receive))
            self._selector.register(pipe, selectors.EVENT_READ, (splitter, receive))

    @property
    def is_open(self) -> bool:
        return bool(self._pipes)

    def read(self, timeout: float) -> None:
        for key, _mask in self._selector.select(timeout):
            if key.fileobj is self._bell:
                self._bell.silence()
                continue
            data = os.read(key.fd, READ_BYTES)
            if not data:
                self._selector.unregister(key.fileobj)
                self._pipes.discard(key.fileobj)
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
        self._pipes.clear()
        self._selector.close()
