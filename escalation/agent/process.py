"""One process of the CLI: starts it, reads its output to the end, and stops it if needed.

Tools run in sessions of their own and survive a kill of the CLI's process group. They are found by
descent, by the recorded sessions of tool shells, and by a mark in the environment. A process is
identified by pid and start time, because pids are reused.

This reads /proc directly. psutil gives the start as a time of day, which changes with the clock,
knows no sessions, and stops reading an environment at the first gap.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import selectors
import signal
import subprocess
import tempfile
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import IO

from escalation.agent.stream import LineSplitter

PROC = Path("/proc")
TOOL_LINE = re.compile(r"([0-9]{1,10}) ([0-9]{1,19})")
SANDBOX_NAME = b"bwrap"
LOOK_SECONDS = 0.1
KILL_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ProcessId:
    pid: int
    started: int
    """In clock ticks since boot."""

    @property
    def is_alive(self) -> bool:
        return started_at(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.is_alive:
                os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class _Entry:
    process: ProcessId
    parent: int
    session: int


def process_id(pid: int) -> ProcessId | None:
    started = started_at(pid)
    return None if started is None else ProcessId(pid, started)


def started_at(pid: int) -> int | None:
    entry = _entry(pid)
    return entry.process.started if entry else None


def recorded_tools(log: Path) -> list[ProcessId]:
    """Return the recorded tool shells; incomplete lines are ignored."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return []
    found = (TOOL_LINE.fullmatch(line) for line in lines)
    return [ProcessId(int(pair[1]), int(pair[2])) for pair in found if pair]


def family(root: ProcessId | None, tools: list[ProcessId], mark: str) -> set[ProcessId]:
    """Return all living processes of a run, except the current process."""
    entries = {entry.process.pid: entry for entry in _entries()}
    found = {entry.process.pid for entry in entries.values() if _has_mark(entry, mark)}
    if root is not None and root.is_alive:
        found.add(root.pid)
    sessions = {tool.pid for tool in tools if _is_still(tool, entries)}
    found |= {entry.process.pid for entry in entries.values() if entry.session in sessions}
    grown = True
    while grown:
        children = {pid for pid, entry in entries.items() if entry.parent in found} - found
        found |= children
        grown = bool(children)
    return {entries[pid].process for pid in found if pid in entries and pid != os.getpid()}


def stop_family(
    find: Callable[[], set[ProcessId]],
    grace_seconds: float,
    wait: Callable[[float], None] = time.sleep,
) -> set[ProcessId]:
    """Send SIGTERM to every process, wait, then kill what is left; return survivors.

    A sandbox ends by itself when it is empty. It gets no SIGTERM, because it would kill its
    processes before they could write their last output.
    """
    asked: set[ProcessId] = set()
    give_up = time.monotonic() + grace_seconds
    while (living := find()) and time.monotonic() < give_up:
        for process in living - asked:
            if _read(process.pid, "comm").strip() != SANDBOX_NAME:
                process.send(signal.SIGTERM)
        asked |= living
        wait(LOOK_SECONDS)
    give_up = time.monotonic() + KILL_TIMEOUT_SECONDS
    while living and time.monotonic() < give_up:
        for process in living:
            process.send(signal.SIGKILL)
        wait(LOOK_SECONDS / 10)
        living = find()
    return living


def boot_id() -> str:
    """Return the id of this boot: pids of an earlier one mean nothing."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _entries() -> list[_Entry]:
    numbers = [int(name) for name in os.listdir(PROC) if name.isdigit()]
    return [entry for entry in map(_entry, numbers) if entry is not None]


def _entry(pid: int) -> _Entry | None:
    # The name stands in parentheses and may itself hold spaces and parentheses.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in {b"Z", b"X"}:
        return None  # gone, or a zombie
    return _Entry(ProcessId(pid, int(fields[19])), int(fields[1]), int(fields[3]))


def _has_mark(entry: _Entry, mark: str) -> bool:
    return bool(mark) and mark.encode() in _read(entry.process.pid, "environ")


def _read(pid: int, name: str) -> bytes:
    """Return a file of /proc; empty if the process is gone or belongs to another user."""
    try:
        with open(f"{PROC}/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _is_still(tool: ProcessId, entries: dict[int, _Entry]) -> bool:
    """Return False if the pid now belongs to a process that started later."""
    leader = entries.get(tool.pid)
    return leader is None or leader.process.started == tool.started


class ReaderWakeup:
    """Wakes up the thread that reads a run before its next tick. Ignored while it is not open."""

    def __init__(self) -> None:
        self._descriptor = -1
        # A closed descriptor may belong to another file a moment later.
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            yield
        finally:
            with self._lock:
                descriptor, self._descriptor = self._descriptor, -1
                os.close(descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def notify(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)


class StreamInput:
    """Standard input of a CLI that takes messages while it runs (`--input-format stream-json`).

    The CLI ends when its input is closed, which happens after its result.
    """

    def __init__(self, prompt: str) -> None:
        self._unsent = bytearray()
        self._pipe: IO[bytes] | None = None
        self._is_over = False
        self.send(prompt)

    def send(self, text: str) -> bool:
        """Add a message of the user. Return False if the input is closed."""
        if self._is_over:
            return False
        content = [{"type": "text", "text": text}]
        line = {"type": "user", "message": {"role": "user", "content": content}}
        self._unsent += json.dumps(line).encode() + b"\n"
        return True

    def open(self, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe

    @property
    def waiting(self) -> IO[bytes] | None:
        """The pipe, if something waits to be written."""
        return self._pipe if self._unsent else None

    def flush(self) -> None:
        """Write what the pipe takes now. A CLI that has ended takes nothing any more."""
        if self._pipe is None:
            return
        try:
            del self._unsent[: os.write(self._pipe.fileno(), self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def close(self) -> None:
        self._is_over = True
        self._unsent.clear()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


# Ctrl-Z, also as newer terminals send it. There is no shell that could continue the CLI.
SUSPEND = (b"\x1a", b"\x1b[122;5u")
# Ends the modes in which a CLI that was killed leaves the terminal: the other screen, mouse, focus
# and paste reports, extended keys, the hidden cursor, colours.
PLAIN_MODES = (
    b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l"
    b"\x1b[?2031l\x1b[<u\x1b[>4m\x1b[?25h\x1b[0m\r\n"
)
MOST_UNWRITTEN = 64 * 1024


class Terminal:
    """The terminal of a person, which is passed on to a pseudoterminal of the CLI.

    The CLI does not get the terminal itself: it could type into the shell behind it, and a lost
    connection would end it before it has written its transcript.
    """

    def __init__(self, stdin: int, stdout: int) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self.last_used = time.monotonic()
        self.is_lost = False
        """The connection has ended: nothing can be read or written any more."""

    @contextlib.contextmanager
    def passed_on(self) -> Iterator[tuple[int, int]]:
        """Give input and output that do not block, in raw mode until the end of the block."""
        before = termios.tcgetattr(self._stdin)
        # Descriptors of our own: a mode of the given ones would hold for the shell, too.
        with contextlib.ExitStack() as opened:
            source = _reopened(self._stdin, os.O_RDONLY, opened)
            target = _reopened(self._stdout, os.O_WRONLY, opened)
            tty.setraw(self._stdin)
            try:
                yield source, target
            finally:
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self._stdin, termios.TCSADRAIN, before)

    def reset(self) -> None:
        """End the modes in which a killed CLI has left the terminal."""
        with contextlib.suppress(OSError):
            os.write(self._stdout, PLAIN_MODES)

    @property
    def size(self) -> bytes:
        """Rows and columns, as the kernel passes them on."""
        try:
            return fcntl.ioctl(self._stdout, termios.TIOCGWINSZ, bytes(8))
        except OSError:
            return bytes(8)


def _reopened(descriptor: int, flags: int, opened: contextlib.ExitStack) -> int:
    """Open a terminal again; one that belongs to another user is used as it is."""
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", flags | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return descriptor
    opened.callback(os.close, own)
    return own


READ_BYTES = 256 * 1024
TICK_SECONDS = 0.1
# Time to end tools and write the transcript before the CLI is killed.
GRACE_SECONDS = 5.0
# Time that a process may go on after its result.
LINGER_SECONDS = 20.0
# A process that a tool left can keep the pipes open after the CLI has ended.
DRAIN_SECONDS = 1.0
ORDINARY_UMASK = 0o022


class Manner(StrEnum):
    """The way in which a run ended."""

    EXITED = "exited"
    TIMED_OUT = "timed out"
    SILENT = "silent"
    STOPPED = "stopped"
    LINGERED = "lingered"
    RUNNER_GONE = "runner gone"
    """The process that ran it has died."""
    ABANDONED = "abandoned"
    """The process that ran it was told to end at once."""
    CRASHED = "crashed"
    """The process that ran it failed."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A request to stop the run, with its cause as code and as text."""

    cause: str
    words: str
    by_fault: bool = False
    """The run itself gave the reason, so it has failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    manner: Manner
    exit_code: int | None
    """None if it is unknown."""
    stop: StopAsked | None = None
    why: str = ""
    """Text for a run that was abandoned or whose runner crashed."""
    silent_seconds: float = 0
    left_running: int = 0
    """Number of processes that a run left on purpose when it ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """Marks of the processes of a run, besides descent."""

    mark: str = ""
    """Text in the environment that every process of the run inherits."""
    tool_log: Path | None = None
    """File in which the tool shell records each tool."""


def _never_silent() -> float:
    return float("inf")


def _none() -> float:
    return 0.0


def _ignore_start(process: ProcessId) -> None:
    pass


def _ignore_stop() -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Watcher:
    """Callbacks and limits for a running process."""

    on_stdout: Callable[[bytes], None]
    on_stderr: Callable[[bytes], None]
    has_result: Callable[[], bool]
    on_tick: Callable[[], StopAsked | None]
    """Called about ten times a second and at each wakeup; a result stops the run."""
    wakeup: ReaderWakeup = field(default_factory=ReaderWakeup)
    on_start: Callable[[ProcessId], None] = _ignore_start
    on_stopping: Callable[[], None] = _ignore_stop
    """Called before the processes are asked to end; later output may be a consequence."""
    silence_budget: Callable[[], float] = _never_silent
    """Seconds without output after which the process is stopped."""
    uncounted: Callable[[], float] = _none
    """Seconds that do not count: the run waited for a person."""


def run_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    prompt: str | StreamInput,
    timeout_seconds: float,
    watcher: Watcher,
    traces: Traces = Traces(),  # noqa: B008 - frozen
) -> Ended:
    """Run a process to its end. Raise OSError if it cannot be started."""
    with watcher.wakeup.opened():
        process = _started(argv, environment, cwd, prompt)
        stdin = prompt if isinstance(prompt, StreamInput) else None
        assert process.stdout is not None
        assert process.stderr is not None
        reader = _PipeReader(process.stdout, process.stderr, watcher, stdin)
        run = _StartedProcess(process, watcher, traces, stdin, reader)
        return _read_to_end(run, timeout_seconds)


def _started(
    argv: Sequence[str], environment: Mapping[str, str], cwd: Path, prompt: str | StreamInput
) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as stdin:
        if isinstance(prompt, str):
            # A file: a long prompt in a pipe could block while output is unread.
            stdin.write(prompt.encode("utf-8", "replace"))
            stdin.seek(0)
        process = subprocess.Popen(
            argv,
            stdin=stdin if isinstance(prompt, str) else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            # Files that an agent writes must be readable for services.
            umask=ORDINARY_UMASK,
        )
    if isinstance(prompt, StreamInput) and process.stdin is not None:
        prompt.open(process.stdin)
    return process


def run_in_terminal(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: Path,
    terminal: Terminal,
    watcher: Watcher,
    traces: Traces = Traces(),  # noqa: B008 - frozen
) -> Ended:
    """Run a process in a person's terminal to its end. Raise OSError if it cannot be started."""
    with contextlib.ExitStack() as opened:
        opened.enter_context(watcher.wakeup.opened())
        ours, theirs = os.openpty()
        opened.callback(os.close, ours)
        source, target = opened.enter_context(terminal.passed_on())
        try:
            fcntl.ioctl(ours, termios.TIOCSWINSZ, terminal.size)
            process = subprocess.Popen(
                argv,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                cwd=cwd,
                env=dict(environment),
                start_new_session=True,
                umask=ORDINARY_UMASK,
            )
        finally:
            os.close(theirs)
        reader = _TerminalReader(ours, source, target, terminal, watcher)
        run = _StartedProcess(process, watcher, traces, None, reader)
        reader.on_resize = run.tell_size
        ended = _read_to_end(run, float("inf"))
    if ended.manner != Manner.EXITED or ended.exit_code != 0:
        terminal.reset()
    return ended


def _read_to_end(run: _StartedProcess, timeout_seconds: float) -> Ended:
    try:
        run.announce()
        ended = run.read_until_end(time.monotonic() + timeout_seconds)
        if run.exit_code != 0:
            # Killed or failed: its tools were not left on purpose.
            run.stop()
    except BaseException:
        # No interruption, not even a timeout of the queue, may leave processes.
        run.stop()
        raise
    finally:
        run.close()
    left = len(run.living()) if run.exit_code == 0 else 0
    return replace(ended, exit_code=run.exit_code, left_running=left)


class _StartedProcess:
    """A started process with its pipes and child processes."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        watcher: Watcher,
        traces: Traces,
        stdin: StreamInput | None,
        reader: _PipeReader | _TerminalReader,
    ) -> None:
        self._process = process
        self._watcher = watcher
        self._traces = traces
        self._root = process_id(process.pid)
        self._stdin = stdin
        self._reader = reader

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def announce(self) -> None:
        if self._root is not None:
            self._watcher.on_start(self._root)

    def read_until_end(self, deadline: float) -> Ended:
        """Read until the pipes close or the run must stop. The caller adds the exit code."""
        gone_since: float | None = None
        while self._reader.is_open:
            self._reader.read(TICK_SECONDS)
            if self._stdin is not None and self._watcher.has_result():
                self._stdin.close()
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
            left = deadline + self._watcher.uncounted() - time.monotonic()
            self._process.wait(max(0.0, min(GRACE_SECONDS, left)))
        if self._process.poll() is None:
            self.stop()
        return Ended(manner=Manner.EXITED, exit_code=None)

    def stop(self) -> None:
        """End all processes of the run, and read their last output: it may have the cost."""
        self._watcher.on_stopping()
        # A CLI that still waits for messages does not end by SIGTERM.
        if self._stdin is not None:
            self._stdin.close()
        stop_family(self.living, GRACE_SECONDS, wait=self._read_or_sleep)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def living(self) -> set[ProcessId]:
        self._process.poll()
        log = self._traces.tool_log
        return family(self._root, recorded_tools(log) if log else [], self._traces.mark)

    def tell_size(self) -> None:
        """Tell the CLI that its terminal has another size: it has no controlling terminal."""
        for process in self.living():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGWINCH)

    def close(self) -> None:
        """Kill what is left of the CLI's process group and close the pipes."""
        if self._stdin is not None:
            self._stdin.close()
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


class _PipeReader:
    """Reads both pipes at once, so that neither fills up. A wakeup ends the wait, too."""

    def __init__(
        self,
        stdout: IO[bytes],
        stderr: IO[bytes],
        watcher: Watcher,
        stdin: StreamInput | None = None,
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._stdin = stdin
        self._wakeup = watcher.wakeup
        self._selector.register(self._wakeup, selectors.EVENT_READ)
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
        with self._writing():
            ready = self._selector.select(timeout)
        for key, _mask in ready:
            if self._stdin is not None and key.data is self._stdin:
                self._stdin.flush()
                continue
            if key.fileobj is self._wakeup:
                self._wakeup.clear()
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

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Wait for the standard input, too, while something is to be written."""
        pipe = self._stdin.waiting if self._stdin is not None else None
        if pipe is None:
            yield
            return
        self._selector.register(pipe, selectors.EVENT_WRITE, self._stdin)
        try:
            yield
        finally:
            self._selector.unregister(pipe)

    def finish(self) -> None:
        """Pass on what stands after the last line end."""
        for splitter, receive in self._splitters:
            for line in splitter.rest():
                receive(line)
        self._pipes.clear()
        self._selector.close()


class _TerminalReader:
    """Copies between a person's terminal and the pseudoterminal of the CLI. A wakeup ends the wait.

    Neither side can block it. Without the person's terminal the output of the CLI is dropped.
    """

    def __init__(
        self, pseudoterminal: int, source: int, target: int, terminal: Terminal, watcher: Watcher
    ) -> None:
        self._pseudoterminal = pseudoterminal
        self._source = source
        self._target = target
        self._terminal = terminal
        self._wakeup = watcher.wakeup
        self._typed = bytearray()
        self._unwritten = bytearray()
        self._size = terminal.size
        self.on_resize: Callable[[], None] = _ignore_stop
        self.is_open = True
        self.last_read = time.monotonic()
        os.set_blocking(pseudoterminal, False)

    def read(self, timeout: float) -> None:
        self._resize()
        with selectors.DefaultSelector() as selector:
            for descriptor, events in self._wanted().items():
                selector.register(descriptor, events)
            selector.register(self._wakeup, selectors.EVENT_READ)
            ready = {key.fd: mask for key, mask in selector.select(timeout)}
        if self._wakeup.fileno() in ready:
            self._wakeup.clear()
        if ready.get(self._source, 0) & selectors.EVENT_READ:
            self._read_keys()
        if ready.get(self._pseudoterminal, 0) & selectors.EVENT_READ:
            self._read_output()
        self._write()

    def finish(self) -> None:
        self.is_open = False
        self._write()

    def _wanted(self) -> dict[int, int]:
        """Return what to wait for on each descriptor."""
        wanted: dict[int, int] = {}
        if len(self._unwritten) < MOST_UNWRITTEN:
            wanted[self._pseudoterminal] = selectors.EVENT_READ
        if self._typed:
            # Together with reading: a CLI that does not read its keys may still write.
            wanted[self._pseudoterminal] = (
                wanted.get(self._pseudoterminal, 0) | selectors.EVENT_WRITE
            )
        if not self._terminal.is_lost:
            if len(self._typed) < MOST_UNWRITTEN:
                wanted[self._source] = selectors.EVENT_READ
            if self._unwritten:
                wanted[self._target] = wanted.get(self._target, 0) | selectors.EVENT_WRITE
        return wanted

    def _read_keys(self) -> None:
        try:
            keys = os.read(self._source, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            keys = b""
        if not keys:
            self._terminal.is_lost = True
            return
        self._terminal.last_used = time.monotonic()
        for key in SUSPEND:
            keys = keys.replace(key, b"")
        self._typed += keys

    def _read_output(self) -> None:
        try:
            data = os.read(self._pseudoterminal, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            # The last process that had the pseudoterminal has ended.
            data = b""
        if not data:
            self.is_open = False
            return
        self.last_read = self._terminal.last_used = time.monotonic()
        self._unwritten += data

    def _write(self) -> None:
        _write_some(self._pseudoterminal, self._typed)
        if not self._terminal.is_lost and not _write_some(self._target, self._unwritten):
            self._terminal.is_lost = True
        if self._terminal.is_lost:
            self._unwritten.clear()

    def _resize(self) -> None:
        if (size := self._terminal.size) != self._size:
            self._size = size
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._pseudoterminal, termios.TIOCSWINSZ, size)
            self.on_resize()


def _write_some(descriptor: int, waiting: bytearray) -> bool:
    """Write what the descriptor takes now. Return False if it takes nothing any more."""
    while waiting:
        try:
            del waiting[: os.write(descriptor, waiting)]
        except BlockingIOError:
            return True
        except OSError:
            waiting.clear()
            return False
    return True
