"""Runs each Bash call of the CLI in a sandbox without grants, and judged programs beside it.

The command runner serves a Unix socket in the run directory, in threads of the worker process.
The text of a Bash call runs in a command sandbox, whatever it says. Programs that need a grant are
shims there: each asks the runner by a socket of its call, the command policy decides on its
argument vector, and the runner executes it in a sandbox of its own with one grant. A program that
needs approval waits before it runs and is decided on again after the approval. If a step fails,
nothing runs. The callbacks are called from these threads, one at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import posixpath
import re
import secrets
import select
import shlex
import signal
import socket
import stat
import struct
import subprocess
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from escalation.agent.process import ProcessId, family, process_id
from escalation.command_policy import grants
from escalation.command_policy.decision import Decision, ExecRequest, read_one_command
from escalation.command_policy.programs import PASSED_VARIABLES, SHIMS
from escalation.command_policy.programs.processes import ALSO_IN_SANDBOX
from escalation.command_policy.remedies import RemedyCall
from escalation.command_policy.understanding import Argv, CommandEffect
from escalation.sandbox.bubblewrap import Namespace, SandboxNotMade, network_namespace
from escalation.sandbox.command_sandbox import (
    DEFAULT_PATH,
    ENTERED,
    HOST_PORT,
    JUDGED_HTTP,
    NO_HOME,
    OWN_PROCESSES,
    PORTS,
    CommandSandbox,
    CommandSandboxes,
    HostCommand,
    program_launcher,
    program_path,
    text_launcher,
    with_sudo,
)
from escalation.sandbox.http_proxy import Failure, OnFailure, open_ports
from escalation.sandbox.layout import TEMPORARY, RunPaths, is_inside
from escalation.sandbox.limits import (
    MEBIBYTE,
    CommandGroup,
    ControlGroups,
    SandboxLimits,
    control_groups,
)
from sessions_app.models.session import Verdict

# Unix sockets at paths of any length: an address holds 107 bytes, so the directory is opened and
# named by its descriptor.


def listening_at(path: Path, backlog: int) -> socket.socket:
    """Listen at a path, for this user alone; a file at the path is removed."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def connect_to(connection: socket.socket, path: Path) -> None:
    with _short(path) as address:
        connection.connect(address)


@contextmanager
def _short(path: Path) -> Iterator[str]:
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


# The protocol between the client and the command runner.

LONGEST_REQUEST = 64 * 1024 * 1024
LONGEST_DIRECTORY = 4096
LONGEST_ENVIRONMENT = 4 * 1024 * 1024
FIRST_LINE = re.compile(rb"(shell|exec) (\d{1,10}) (\d{1,10}) (\d{1,10})\n")
FIRST_LINE_BYTES = 48
DESCRIPTORS = {"shell": 2, "exec": 3}
MOST_DESCRIPTORS = 16
TIMEOUT_SECONDS = 30.0
# No directories: a command could leave its sandbox through the descriptor of one.
KINDS = (stat.S_ISREG, stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISCHR)


class BadRequest(Exception):
    """The request is invalid; nothing runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    kind: str
    """"shell" for a text, "exec" for an argument vector."""
    body: bytes
    """The text, or the arguments with NUL between them."""
    cwd: str = ""
    environment: bytes = b""
    descriptors: tuple[int, ...] = ()
    no_input: bool = False

    @property
    def outputs(self) -> tuple[int, int]:
        return self.descriptors[-2], self.descriptors[-1]

    @property
    def stdin(self) -> int:
        has_input = self.kind == "exec" and not self.no_input
        return self.descriptors[0] if has_input else subprocess.DEVNULL

    def close(self) -> None:
        _close(self.descriptors)


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the client runs as the user of this process."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    _pid, uid, _gid = struct.unpack("3i", credentials)
    return bool(uid == os.getuid())


def read_request(connection: socket.socket) -> Request:
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        data, descriptors, flags, _address = socket.recv_fds(
            connection, 65536, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
    except OSError as error:
        raise BadRequest(f"the request could not be received: {error}") from error
    try:
        # Read to the end even if invalid: unread data would reset the connection.
        kind, (body, directory, environment) = _read_parts(connection, data)
        wanted = DESCRIPTORS[kind]
        if flags & socket.MSG_CTRUNC or len(descriptors) != wanted:
            raise BadRequest(f"a request of the kind {kind} must have {wanted} descriptors")
        if not all(map(_is_stream, descriptors)):
            raise BadRequest("the descriptors of the request cannot be written")
    except BaseException:
        _close(descriptors)
        raise
    return Request(
        kind=kind,
        body=body,
        cwd=directory.decode("utf-8", "surrogateescape"),
        environment=environment,
        descriptors=tuple(descriptors),
    )


def answer(connection: socket.socket, exit_code: int, message: str) -> None:
    """Send exit code and message, unless the client has disconnected."""
    text = f"{message.rstrip()}\n".encode("utf-8", "replace") if message else b""
    with contextlib.suppress(OSError):
        connection.settimeout(TIMEOUT_SECONDS)
        connection.sendall(b"%d %d\n" % (exit_code, len(text)) + text)
        connection.shutdown(socket.SHUT_WR)


def _read_parts(connection: socket.socket, data: bytes) -> tuple[str, list[bytes]]:
    pieces = bytearray(data)
    while b"\n" not in pieces[:FIRST_LINE_BYTES] and len(pieces) < FIRST_LINE_BYTES:
        pieces += _more(connection)
    line = FIRST_LINE.match(pieces)
    if line is None:
        raise BadRequest("the first line of the request is invalid")
    lengths = [int(number) for number in line.groups()[1:]]
    longest = (LONGEST_REQUEST, LONGEST_DIRECTORY, LONGEST_ENVIRONMENT)
    if any(length > most for length, most in zip(lengths, longest, strict=True)):
        raise BadRequest("the request is too long")
    end = line.end() + sum(lengths)
    while len(pieces) < end:
        pieces += _more(connection)
    parts, start = [], line.end()
    for length in lengths:
        parts.append(bytes(pieces[start : start + length]))
        start += length
    return line[1].decode(), parts


def _more(connection: socket.socket) -> bytes:
    try:
        data = connection.recv(1024 * 1024)
    except OSError as error:
        raise BadRequest(f"the request is incomplete: {error}") from error
    if not data:
        raise BadRequest("the request is incomplete")
    return data


def _is_stream(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return any(is_kind(mode) for is_kind in KINDS)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


# One command as a process: start, supervision, end.

OUTPUT_POLL_SECONDS = 1.0
GRACE_SECONDS = 2.0
LONGEST_REPORT = 16 * 1024
MOST_COUNTED = 50_000
# That of the worker is narrower; files of an agent are for other services, too.
ORDINARY_UMASK = 0o022
PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandOutcome:
    exit_code: int
    entered: bool
    """The command itself started."""
    directory: str = ""
    """The working directory at the end, after exit code 0."""
    left_behind: int = 0
    """Processes that the text left running; they ended with the sandbox."""
    ended_because: str = ""
    """The reason why the command runner ended it, for the model."""
    notice: str = ""
    """What the output does not tell by itself, for the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Describes the start of a command whose descriptors have no numbers yet."""

    argv: Callable[[int, int], Sequence[str]]
    """Takes the numbers of the descriptors for the text and for the report."""
    environment: Mapping[str, str]
    cwd: str
    text: str = ""
    descriptors: tuple[int, ...] = ()
    """Further descriptors that `argv` names."""
    group: CommandGroup | None = None
    on_host: HostCommand | None = None
    temporary: Path | None = None
    """The directory of the run that is /tmp inside."""

    def inside(self, group: CommandGroup) -> Start:
        return replace(self, group=group)


def run_command(
    start: Start,
    request: Request,
    *,
    connection: socket.socket,
    stopping: int,
    limits: SandboxLimits,
    listener: CallListener | None = None,
) -> CommandOutcome:
    """Run a command to its end; raise OSError if it cannot be started.

    The calling thread must wait, because bubblewrap dies with the thread that started it.
    """
    with memory_file(start.text.encode()) as text, _pipe() as (report, reporting):
        argv = start.argv(text, reporting.fileno())
        process = subprocess.Popen(
            start.group.entering(argv) if start.group else argv,
            stdin=request.stdin,
            stdout=request.outputs[0],
            stderr=request.outputs[1],
            env=dict(start.environment),
            cwd=start.cwd,
            pass_fds=(text, reporting.fileno(), *start.descriptors),
            start_new_session=True,
            umask=ORDINARY_UMASK,
        )
        reporting.close()
        running = _RunningCommand(process, start.on_host, request, limits, start.temporary)
        try:
            running.until_end(connection, stopping, listener)
        finally:
            running.end()
        return _outcome(process.returncode, running.ended_because, _read_report(report))


class CallListener:
    """Accepts the requests of one command's sandbox, in threads that end with it."""

    def __init__(self, path: Path, serve: Callable[[socket.socket], None]) -> None:
        self.path = path
        self._serve = serve
        self._listener = listening_at(path, WAITING)
        self._listener.setblocking(False)

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError:
            return
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.path.unlink(missing_ok=True)


class _RunningCommand:
    """A started command, until it has ended or is stopped."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        on_host: HostCommand | None,
        request: Request,
        limits: SandboxLimits,
        temporary: Path | None = None,
    ) -> None:
        self._temporary = temporary
        self._most = limits.temporary_bytes
        self._process = process
        self._on_host = on_host
        self._root = process_id(process.pid)
        self._outputs = [
            (descriptor, os.fstat(descriptor).st_size + limits.output_bytes)
            for descriptor in request.outputs
            if stat.S_ISREG(os.fstat(descriptor).st_mode)
        ]
        self._deadline: float | None = None
        self._longest = limits.longest_seconds
        self._began = time.monotonic()
        self.ended_because = ""
        if on_host:
            on_host.started(process)

    def until_end(
        self, connection: socket.socket, stopping: int, listener: CallListener | None
    ) -> None:
        ended = os.pidfd_open(self._process.pid)
        poll = select.poll()
        asked = [listener.fileno()] if listener else []
        for descriptor in (ended, connection.fileno(), stopping, *asked):
            poll.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = {descriptor for descriptor, _event in poll.poll(self._timeout_ms())}
                if ended in ready:
                    return
                if listener and listener.fileno() in ready:
                    listener.accept()
                if stopping in ready:
                    self.ended_because = "The run is over."
                    return
                if connection.fileno() in ready and not self._pass_signals(connection):
                    self.ended_because = "The CLI cancelled the command."
                    return
                if self._is_over_time() or self._prints_too_much() or self._runs_too_long():
                    return
                if self._fills_temporary():
                    return
        finally:
            os.close(ended)

    def end(self) -> None:
        if self._on_host:
            self._process.poll()
            self._on_host.stop_remaining()
        if self._process.poll() is None:
            # The first process of the sandbox dies with bubblewrap, and all others with that.
            self._process.kill()
        self._process.wait()

    def _pass_signals(self, connection: socket.socket) -> bool:
        """Pass signals of the client on; return False if it has disconnected."""
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
        """Return all processes but bubblewrap, which would kill the others on a signal."""
        if self._root is None:
            return set()
        found = family(self._root, [self._root], "")
        return found if self._on_host else found - {self._root}

    def _timeout_ms(self) -> float:
        left = OUTPUT_POLL_SECONDS if self._deadline is None else self._deadline - time.monotonic()
        return max(0.0, min(OUTPUT_POLL_SECONDS, left)) * 1000

    def _is_over_time(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _runs_too_long(self) -> bool:
        if time.monotonic() - self._began > self._longest:
            minutes = f"{self._longest / 60:g} minutes"
            self.ended_because = f"It ran for more than {minutes} and was ended. Do it in parts."
        return bool(self.ended_because)

    def _fills_temporary(self) -> bool:
        """Check the size of /tmp, which is a directory of the run."""
        if self._temporary and _size_of(self._temporary, self._most) > self._most:
            self.ended_because = (
                f"It filled /tmp with more than {self._most // MEBIBYTE} MiB and was ended. "
                "Remove what is not needed."
            )
        return bool(self.ended_because)

    def _prints_too_much(self) -> bool:
        """Check the size of output files; a pipe makes the command wait instead."""
        if any(os.fstat(descriptor).st_size > most for descriptor, most in self._outputs):
            self.ended_because = "It printed too much and was ended. Print less, or count."
        return bool(self.ended_because)


def _size_of(directory: Path, most: int) -> int:
    """Return the size of all files, or more than `most` if there are too many to count."""
    size = counted = 0
    for where, _directories, files in os.walk(directory):
        for name in files:
            counted += 1
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(where, name)).st_blocks * 512
        if counted > MOST_COUNTED or size > most:
            return most + 1
    return size


def _outcome(returncode: int, ended_because: str, report: bytes) -> CommandOutcome:
    exit_code = returncode if returncode >= 0 else 128 - returncode
    lines = report.removeprefix(ENTERED).split(b"\n", 1)
    processes = int(lines[0]) if lines[0].isdigit() else 0
    path = os.fsdecode(lines[1].removesuffix(b"\n")) if len(lines) > 1 else ""
    return CommandOutcome(
        exit_code=exit_code or (137 if ended_because else 0),
        entered=report.startswith(ENTERED),
        directory=path if path.startswith("/") else "",
        left_behind=max(0, processes - OWN_PROCESSES),
        ended_because=ended_because,
    )


@contextlib.contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """Store bytes in a sealed memory file, which cannot be changed."""
    descriptor = os.memfd_create("command", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        data = memoryview(content)
        while data:
            data = data[os.write(descriptor, data) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, IO[bytes]]]:
    """Give the writing end as an object: after closing, another thread may get its number."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    with open(reading, "rb", buffering=0), open(writing, "wb", buffering=0) as writer:
        yield reading, writer


def _write_at_once(descriptor: int, text: bytes) -> None:
    """Write a short text, unless that would have to wait."""
    writable = select.poll()
    writable.register(descriptor, select.POLLOUT)
    if any(event & select.POLLOUT for _found, event in writable.poll(0)):
        with contextlib.suppress(OSError):
            os.write(descriptor, text)


def _read_report(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        return os.read(descriptor, LONGEST_REPORT)
    return b""


# Parsing of the shell text that the CLI passes to CLAUDE_CODE_SHELL_PREFIX. It sources a snapshot,
# runs the command as one quoted word of `eval`, and writes the last directory to a file. The
# preamble differs between versions; the word after the first `eval` has always been the command.

LONGEST_COMMAND = 256 * 1024
# These end an unquoted word. The CLI writes no text that a shell would expand.
BETWEEN_WORDS = " \t\n;&|<>(){}"
EXPANDS = "$`*?[~#!"
ESCAPED_IN_QUOTES = '$`"\\\n'
# In the preamble, as for commands that an old bash cannot run.
VARIABLE = re.compile(r"\$\{\w+-?\}|\$\w+")
AFTER_EVAL = re.compile(r"\s*(?:\\?<\s*/dev/null\s*)?(?:&&\s*pwd -P\s*>\|\s*(?P<file>.+))?", re.S)


class NotACommand(Exception):
    """The text holds no command of the Bash tool; nothing runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShellText:
    command: str
    directory_file: str = ""
    """The file in which the CLI expects the last directory of the command."""


def read_bytes(text: bytes) -> ShellText:
    """Decode and parse; raise NotACommand if that is impossible."""
    if len(text) > LONGEST_COMMAND:
        raise NotACommand(f"it is longer than {LONGEST_COMMAND} bytes; write it to a file in parts")
    if b"\0" in text:
        raise NotACommand("it holds a NUL byte")
    try:
        return read_shell_text(text.decode())
    except UnicodeDecodeError as error:
        raise NotACommand("it is not valid UTF-8") from error


def read_shell_text(text: str) -> ShellText:
    start = _after_first_eval(text)
    command, end = _word(text, start)
    rest = AFTER_EVAL.fullmatch(text, end)
    file = ""
    if rest is not None and rest["file"]:
        try:
            file, file_end = _word(rest["file"], 0)
        except NotACommand:
            file_end = -1
        if file_end != len(rest["file"]):
            file = ""
    return ShellText(command=command, directory_file=file)


def _after_first_eval(text: str) -> int:
    """Return the position of the argument of the first unquoted `eval`."""
    index, begins_word = 0, True
    while index < len(text):
        if begins_word and re.compile(r"eval[ \t]+").match(text, index):
            return index + len("eval") + _blanks(text, index + len("eval"))
        character = text[index]
        begins_word = character in BETWEEN_WORDS
        if character in "'\"":
            _piece, index = _quoted(text, index, computed=VARIABLE)
        else:
            index += 2 if character == "\\" else 1
    raise NotACommand("it holds no command of the Bash tool")


def _blanks(text: str, index: int) -> int:
    return len(text[index:]) - len(text[index:].lstrip(" \t"))


def _word(text: str, index: int) -> tuple[str, int]:
    """Return one shell word without quotes, and its end."""
    pieces: list[str] = []
    start = index
    while index < len(text) and text[index] not in BETWEEN_WORDS:
        character = text[index]
        if character in "'\"":
            piece, index = _quoted(text, index)
            pieces.append(piece)
        elif character == "\\" and index + 1 < len(text):
            pieces.append("" if text[index + 1] == "\n" else text[index + 1])
            index += 2
        elif character in EXPANDS or character == "\\":
            raise NotACommand("its words are computed")
        else:
            pieces.append(character)
            index += 1
    if index == start:
        raise NotACommand("its command is missing")
    return "".join(pieces), index


def _quoted(text: str, index: int, computed: re.Pattern[str] | None = None) -> tuple[str, int]:
    """Return the text of the quotes that open here, and their end.

    `computed` matches what may be computed in double quotes, and is kept as it is.
    """
    quote = text[index]
    if quote == "'":
        end = text.find("'", index + 1)
        if end < 0:
            raise NotACommand("a quote is not closed")
        return text[index + 1 : end], end + 1
    pieces: list[str] = []
    index += 1
    while index < len(text) and text[index] != '"':
        if text[index] == "\\" and text[index + 1 : index + 2] in {*ESCAPED_IN_QUOTES}:
            pieces.append("" if text[index + 1] == "\n" else text[index + 1])
            index += 2
        elif computed and (found := computed.match(text, index)):
            pieces.append(found[0])
            index = found.end()
        elif text[index] in "$`":
            raise NotACommand("its words are computed")
        else:
            pieces.append(text[index])
            index += 1
    if index >= len(text):
        raise NotACommand("a quote is not closed")
    return "".join(pieces), index + 1


logger = logging.getLogger(__name__)


def write_directory(file: str, directory: str, temporary: Path) -> None:
    """Write the last directory of a command to the file that the CLI named.

    Only directly in the temporary directory of the run, and through no link: the CLI can write
    there, and the worker can write everywhere.
    """
    parent, name = os.path.split(file)
    if os.path.realpath(parent) != os.path.realpath(temporary) or name in {"", ".", ".."}:
        logger.warning("The CLI named a directory file outside its temporary directory: %r", file)
        return
    try:
        directory_fd = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _write(directory_fd, name, os.fsencode(directory) + b"\n")
        finally:
            os.close(directory_fd)
    except OSError as error:
        logger.warning("Could not write the directory file %r: %s", file, error)


def _write(directory: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.write(descriptor, data)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionRecord:
    """The decision on a Bash call or on a program, recorded before it runs."""

    command: str
    """The text of a Bash call, or an argument vector as a shell would quote it."""
    verdict: Verdict
    rule: str
    reason: str
    cwd: str
    at: datetime
    decision_ms: float = 0.0
    grant: str = ""
    actions: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    effects: tuple[CommandEffect, ...] = ()
    allowed_from: int = 0
    remedy: str = ""
    """The stamp of the remedy that would run."""
    parent: str = ""
    """The `call` of the Bash call that executed this program; empty for the Bash call itself."""
    call: str = field(default_factory=lambda: secrets.token_hex(4))
    """Distinguishes two calls of the same command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEnd:
    exit_code: int
    run_ms: float
    location: str
    """"sandbox", "host", "broker", or "" for a command that did not run."""
    has_run: bool = True
    """False if it was denied or its sandbox could not be started."""
    status: int = 0
    """The status of HTTP with which a resource behind a broker answered."""


# Approval of a command. The thread that serves it only waits; the thread that reads the stream of
# the run reads and writes the database.


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalAnswer:
    approved: bool
    words: str = ""
    """For the model: the reason why it does not run, or the note of the approver."""


class ApprovalQuestion:
    def __init__(self, record: DecisionRecord) -> None:
        self.record = record
        self.answer: ApprovalAnswer | None = None
        self.left = False
        """Return whether the command no longer waits."""
        self.began = False
        """Return whether the approved command was started."""

    def settle(self, answer: ApprovalAnswer) -> None:
        self.answer = answer


def reject_unasked(question: ApprovalQuestion) -> None:
    question.settle(
        ApprovalAnswer(approved=False, words="No approver can be asked here: it did not run.")
    )


DENIED = 126
AT_ONCE = 16
"""Bash calls that run at the same time, and twice as many programs of shims; others wait."""
WAITING = 512
TRIES = 3
KEPT_OF_UNREADABLE = 1000
LONGEST_SHOWN_VECTOR = 20_000
POLL_SECONDS = 0.2
LEAVE_SECONDS = 15.0

Decide = Callable[[ExecRequest], Decision]
NOT_RUN = CommandEnd(exit_code=DENIED, run_ms=0, location="", has_run=False)
Ask = Callable[[ApprovalQuestion], None]
"""Forwards a question and returns at once; another thread settles it later."""
Broker = Callable[[socket.socket, OnFailure], AbstractContextManager[None]]
"""Serves a listening socket of a sandbox until the end of the block."""
# The exit codes of clients by what the proxy, to which they spoke, could not do for them.
CLIENT_CODES = {
    "curl": {Failure.NAME: 6, Failure.CONNECTION: 7},
    "wget": {Failure.NAME: 4, Failure.CONNECTION: 4},
}
NOT_YET = "No approver has answered yet: it did not run."
WAITS = (
    "claudeops: waits for an approver: {command}\nclaudeops: if this call ends before the answer, "
    "it does not run, and the question stays open for a while: run exactly the same command again "
    "to find the answer.\n"
)
LONGEST_NAMED = 200
ON_HOST = frozenset({grants.HOST, grants.PROCESSES, grants.RAW})
"""Grants of programs that run on the host itself; for those but the first the policy allows only
vectors that look."""
IN_SANDBOX = "in the sandbox"
"""The rule of every Bash call: its text runs without grants."""
OVER = "The run is over: this command did not run."


def _ignore_end(record: DecisionRecord, end: CommandEnd) -> None:
    """Default for a caller that records no ends."""


@dataclass(frozen=True, slots=True)
class CommandRefusal:
    """The reason why a command that the policy allows does not run now."""

    rule: str
    reason: str


def _no_objection(record: DecisionRecord) -> CommandRefusal | None:
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A decision that is on record, with what the model is told."""

    record: DecisionRecord
    decision: Decision
    may_run: bool
    words: str = ""


class CommandRunner:
    def __init__(
        self,
        paths: RunPaths,
        decide: Decide,
        on_decision: Callable[[DecisionRecord], None],
        on_end: Callable[[DecisionRecord, CommandEnd], None] = _ignore_end,
        *,
        ask: Ask = reject_unasked,
        limits: SandboxLimits | None = None,
        objection: Callable[[DecisionRecord], CommandRefusal | None] = _no_objection,
        brokers: Mapping[str, Broker] | None = None,
    ) -> None:
        """`objection` is called for each program that is not denied, from its thread."""
        self._ask = ask
        self._paths = paths
        self._objection = objection
        self._decide = decide
        self._on_decision = on_decision
        self._on_end = on_end
        self._limits = limits or SandboxLimits()
        self._brokers = brokers or {}
        self._texts = threading.BoundedSemaphore(AT_ONCE)
        self._programs = threading.BoundedSemaphore(2 * AT_ONCE)
        self._record_lock = threading.Lock()
        self._errors: dict[str, int] = {}
        """The descriptors of stderr of running Bash calls."""
        self._errors_lock = threading.Lock()
        self._failed = 0
        self._failures: deque[tuple[int, Failure, str]] = deque(maxlen=50)
        self._threads: set[threading.Thread] = set()
        self._stopping = -1
        self._groups = ControlGroups()
        self._sandboxes: CommandSandboxes | None = None
        self._networks: dict[tuple[tuple[str, int], ...], Namespace] = {}
        self._making_network = threading.Lock()
        self._until_end = ExitStack()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve commands until the end of the block, then stop those that still run."""
        self._groups = control_groups()
        self._sandboxes = (
            CommandSandboxes(self._paths, self._limits) if self._paths.sandboxed else None
        )
        self._stopping = os.eventfd(0, os.EFD_CLOEXEC)
        self._paths.calls.mkdir(exist_ok=True)
        listener = self._listener()
        accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        try:
            accepting.start()
            self._start_thread(self._prepare)
            yield
        finally:
            os.eventfd_write(self._stopping, 1)
            accepting.join(LEAVE_SECONDS)
            listener.close()
            until = time.monotonic() + LEAVE_SECONDS
            for thread in list(self._threads):
                thread.join(max(0.0, until - time.monotonic()))
            with contextlib.suppress(OSError):
                self._paths.socket.unlink()
            self._until_end.close()
            if not any(thread.is_alive() for thread in self._threads):
                os.close(self._stopping)

    def _prepare(self) -> None:
        """Make what the first Bash call needs, while the CLI starts."""
        if self._sandboxes is None:
            return
        try:
            self._network(self._sandboxes.brokers)
            self._sandboxes.prepare()
        except (SandboxNotMade, OSError) as error:
            logger.info("The sandbox of the first command is not prepared: %s", error)

    def _network(
        self, brokers: Sequence[str], ports: frozenset[int] = frozenset()
    ) -> Namespace | None:
        """Return the network in which these brokers listen, made once for the run.

        `ports` are those of the host that answer there, too.
        """
        wanted = [(name, PORTS[name]) for name in brokers]
        wanted += [(HOST_PORT, port) for port in sorted(ports - set(PORTS.values()))]
        known = tuple(pair for pair in wanted if pair[0] in self._brokers)
        if not known:
            return None
        with self._making_network:
            if known not in self._networks:
                namespace, listeners = network_namespace([port for _name, port in known])
                for (name, _port), listener in zip(known, listeners, strict=True):
                    self._until_end.callback(listener.close)
                    serving = self._brokers[name](listener, self._note_failure)
                    self._until_end.enter_context(serving)
                self._networks[known] = namespace
            return self._networks[known]

    def _note_failure(self, failure: Failure, words: str) -> None:
        with self._record_lock:
            self._failed += 1
            self._failures.append((self._failed, failure, words))

    def _explained(self, outcome: CommandOutcome, argv: Argv, before: int) -> CommandOutcome:
        """Return the outcome of a client with the code and words of what failed at the proxy.

        Several clients use the proxy at once: the host in the words must be one of the vector.
        """
        if outcome.exit_code == 0 or outcome.ended_because:
            return outcome
        asked = " ".join(argv)
        for number, failure, words in reversed(self._failures):
            named = re.search(r"[\w.-]+(?::\d+)?(?=[ :]|\Z)", words.partition(" to ")[2] or words)
            if number > before and (named is None or named[0].partition(":")[0] in asked):
                code = CLIENT_CODES.get(argv[0], {}).get(failure, outcome.exit_code)
                return replace(outcome, exit_code=code, notice=f"{OWN_WORDS}{words}")
        return outcome

    def judge(
        self,
        decide: Callable[[], Decision],
        command: str,
        *,
        cwd: str = "",
        parent: str = "",
        waiting: socket.socket | None = None,
        has_signals: bool = False,
    ) -> Judged:
        """Decide, record, and wait for an approval where one is needed.

        Also for the brokers, which judge requests; `waiting` is the client's connection, and with
        `has_signals` each byte on it is a signal.
        """
        began = time.perf_counter()
        decision = self._decision(decide)
        record = _record(decision, command, cwd, parent, (time.perf_counter() - began) * 1000)
        if record.verdict != Verdict.DENY and (refusal := self._refusal(record)):
            decision = _denied(refusal.rule, refusal.reason)
            record = replace(
                record, verdict=Verdict.DENY, rule=refusal.rule, reason=refusal.reason, grant=""
            )
        words = self._recorded(record) or (decision.reason if decision.is_denied else "")
        if words or decision.is_denied:
            self.record_end(record, NOT_RUN)
            return Judged(record=record, decision=decision, may_run=False, words=words)
        if decision.verdict != Verdict.ASK:
            return Judged(record=record, decision=decision, may_run=True)
        gone = select.poll()
        gone.register(self._stopping, select.POLLIN)
        if waiting is not None:
            gone.register(waiting, select.POLLRDHUP | (select.POLLIN if has_signals else 0))
        answered = self._wait_for_approval(record, decision, decide, gone)
        if not answered.approved:
            self.record_end(record, NOT_RUN)
        return Judged(
            record=record, decision=decision, may_run=answered.approved, words=answered.words
        )

    def record_end(self, record: DecisionRecord, end: CommandEnd) -> None:
        """Record the end of a command; a failure is only logged."""
        try:
            with self._record_lock:
                self._on_end(record, end)
        except Exception:
            logger.exception("Could not record the end of a command")

    def _listener(self) -> socket.socket:
        listener = listening_at(self._paths.socket, WAITING)
        listener.setblocking(False)
        return listener

    def _accept(self, listener: socket.socket) -> None:
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(self._stopping, select.POLLIN)
        while not any(found == self._stopping for found, _event in poll.poll()):
            try:
                connection, _address = listener.accept()
            except OSError:
                # No descriptor is free, or the client has disconnected.
                time.sleep(POLL_SECONDS / 10)
                continue
            self._start_thread(self._serve, connection)

    def _start_thread(self, act: Callable[..., None], *arguments: object) -> None:
        """Start a thread for which the end of the run waits."""
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads = {one for one in self._threads if one.is_alive()} | {thread}
        thread.start()

    def _serve(self, connection: socket.socket, parent: str = "") -> None:
        """Serve one request: of the CLI, or of a shim in the Bash call `parent`."""
        with connection:
            try:
                if not is_same_user(connection):
                    raise BadRequest("it comes from another user")
                request = read_request(connection)
                if request.kind != ("exec" if parent else "shell"):
                    request.close()
                    raise BadRequest(f"a request of the kind {request.kind} is not served here")
            except BadRequest as error:
                logger.warning("The command runner refused a request: %s", error)
                answer(connection, DENIED, f"The command runner refuses this request: {error}.")
                return
            # Cleanup that the client need not wait for.
            with ExitStack() as afterwards:
                with contextlib.closing(request):
                    exit_code, message = (
                        self._program(request, connection, parent, afterwards)
                        if parent
                        else self._text(request, connection, afterwards)
                    )
                answer(connection, exit_code, message)

    # The text of a Bash call.

    def _text(
        self, request: Request, connection: socket.socket, afterwards: ExitStack
    ) -> tuple[int, str]:
        try:
            shell = read_bytes(request.body)
        except NotACommand as error:
            unreadable = request.body[:KEPT_OF_UNREADABLE].decode("utf-8", "replace")
            denied = _denied("not readable", f"This command did not run: {error}.")
            judged = self.judge(lambda: denied, unreadable.replace("\0", "�"), cwd=request.cwd)
            return DENIED, judged.words
        if self._sandboxes is None:
            return self._on_host_alone(shell, request, connection, afterwards)
        isolated = Decision(verdict=Verdict.ISOLATE, rule=IN_SANDBOX)
        judged = self.judge(lambda: isolated, shell.command, cwd=request.cwd)
        if not judged.may_run:
            return DENIED, judged.words

        def start() -> CommandOutcome:
            return self._run_text(judged.record, shell.command, request, connection, afterwards)

        with self._saying(judged.record.call, request):
            return self._run(judged, self._texts, start, connection, "sandbox", shell)

    def _run_text(
        self,
        record: DecisionRecord,
        text: str,
        request: Request,
        connection: socket.socket,
        afterwards: ExitStack,
    ) -> CommandOutcome:
        sandboxes = self._sandboxes
        assert sandboxes is not None, "without sandboxes no text runs"
        connects = grants.NETWORK in self._paths.grants.names and CONNECTS.search(text)
        network = self._network(sandboxes.brokers, open_ports() if connects else frozenset())
        with self._listening(record.call) as listener:
            sandbox = sandboxes.for_text(listener.path, request.cwd, network)

            def inside(command: int, report: int) -> list[str]:
                return text_launcher(self._limits, command=command, report=report)

            return self._start(
                sandbox, inside, request, connection, afterwards, text=text, listener=listener
            )

    def _on_host_alone(
        self,
        shell: ShellText,
        request: Request,
        connection: socket.socket,
        afterwards: ExitStack,
    ) -> tuple[int, str]:
        """Run a text that is one plain command, where the operator switched sandboxes off."""
        argv = read_one_command(shell.command)
        if argv is None:
            denied = _denied(
                "no sandbox",
                "Without a sandbox only one plain command runs at a time, without pipes, "
                "variables, redirections and globs. Write it plainly.",
            )
            judged = self.judge(lambda: denied, shell.command, cwd=request.cwd)
            return DENIED, judged.words
        wanted = ExecRequest(argv=argv, cwd=request.cwd)
        with self._saying(secrets.token_hex(4), request):
            return self._execute(wanted, shell.command, request, connection, "", afterwards, shell)

    # Programs.

    def _program(
        self, request: Request, connection: socket.socket, parent: str, afterwards: ExitStack
    ) -> tuple[int, str]:
        try:
            wanted = exec_request(request)
        except UnicodeDecodeError:
            return DENIED, "The arguments of this program are not valid UTF-8: it did not run."
        command = shlex.join(wanted.argv)[:LONGEST_SHOWN_VECTOR]
        return self._execute(wanted, command, request, connection, parent, afterwards)

    def _execute(
        self,
        wanted: ExecRequest,
        command: str,
        request: Request,
        connection: socket.socket,
        parent: str,
        afterwards: ExitStack,
        shell: ShellText | None = None,
    ) -> tuple[int, str]:
        def decide() -> Decision:
            return self._check_directory(self._decide(wanted), wanted.cwd)

        judged = self.judge(
            decide, command, cwd=wanted.cwd, parent=parent, waiting=connection, has_signals=True
        )
        if not judged.may_run:
            return DENIED, judged.words
        decision = judged.decision
        if decision.prints:
            return self._print(judged, request)
        if decision.remedy:
            return self._remedy(judged, decision.remedy, request, connection, afterwards, shell)
        decision = self._in_own_files(decision, wanted.cwd)
        # The one sandbox is already that of root, the other needs no root.
        own_rights = (grants.FILES, grants.DOCKER)
        words = after_sudo(decision.argv) if decision.grant in own_rights else decision.argv
        file = program_path(words[0], self._paths)
        if file is None:
            self.record_end(judged.record, NOT_RUN)
            return 127, f"{words[0]}: command not found"
        argv = (file, *words[1:])
        request = replace(request, no_input=decision.no_input)

        def start() -> CommandOutcome:
            return self._run_program(decision, argv, request, connection, afterwards)

        where = "host" if self._runs_on_host(decision) else "sandbox"
        return self._run(judged, self._programs, start, connection, where, shell)

    def _run_program(
        self,
        decision: Decision,
        argv: Sequence[str],
        request: Request,
        connection: socket.socket,
        afterwards: ExitStack,
    ) -> CommandOutcome:
        if self._runs_on_host(decision):
            host = HostCommand(self._paths)
            # What only looks has no use for the settings in a home.
            home = {} if decision.grant == grants.HOST else {"HOME": NO_HOME}
            start = Start(
                argv=lambda _text, report: program_launcher(argv, None, report),
                environment={**host.environment, **home, **dict(decision.environment)},
                cwd=request.cwd if os.path.isdir(request.cwd) else str(self._paths.workdir),
                on_host=host,
            )
            return self._run_to_end(start, request, connection)
        sandboxes = self._sandboxes
        assert sandboxes is not None, "without sandboxes a program runs on the host"
        grant = JUDGED_HTTP if decision.grant == grants.HTTP else decision.grant
        network = self._network((grant,)) if grant == JUDGED_HTTP else None
        sandbox = sandboxes.for_program(grant, request.cwd, network)
        environment = {**sandbox.environment, **dict(decision.environment)}

        def inside(_text: int, report: int) -> list[str]:
            return program_launcher(argv, self._limits, report)

        sandbox = replace(sandbox, environment=environment)
        before = self._failed
        outcome = self._start(sandbox, inside, request, connection, afterwards)
        return self._explained(outcome, decision.argv, before) if network else outcome

    # Remedies.

    def _print(self, judged: Judged, request: Request) -> tuple[int, str]:
        """Answer with a text instead of running a program."""
        with contextlib.suppress(OSError):
            os.write(request.outputs[0], judged.decision.prints.encode())
        end = CommandEnd(exit_code=0, run_ms=0, location="sandbox")
        self.record_end(judged.record, end)
        return 0, ""

    def _remedy(
        self,
        judged: Judged,
        call: RemedyCall,
        request: Request,
        connection: socket.socket,
        afterwards: ExitStack,
        shell: ShellText | None,
    ) -> tuple[int, str]:
        # Nothing of the agent reaches it but the values of its parameters.
        request = replace(request, no_input=True)

        def start() -> CommandOutcome:
            return self._start_remedy(call, request, connection, afterwards)

        where = "host" if self._runs_on_host(judged.decision) else "sandbox"
        return self._run(judged, self._programs, start, connection, where, shell)

    def run_remedy(self, call: RemedyCall, output: int) -> CommandOutcome:
        """Run a remedy to its end for a person or the supervisor, in the calling thread."""
        kept, given = socket.socketpair()
        with kept, given, open(os.devnull, "rb") as nothing, ExitStack() as afterwards:
            request = Request(
                kind="exec", body=b"", descriptors=(nothing.fileno(), output, output), no_input=True
            )
            return self._tried(lambda: self._start_remedy(call, request, given, afterwards))

    def _start_remedy(
        self,
        call: RemedyCall,
        request: Request,
        connection: socket.socket,
        afterwards: ExitStack,
    ) -> CommandOutcome:
        """Run the declared vector without a shell; of a script, the accepted content."""
        limits = replace(
            self._limits, longest_seconds=min(call.seconds, self._limits.longest_seconds)
        )
        with self._pinned(call) as (argv, descriptors):
            if argv is None:
                message = f"There is no program {call.argv[0]}."
                return CommandOutcome(exit_code=127, entered=False, ended_because=message)
            if call.on_host or self._sandboxes is None:
                host = HostCommand(self._paths)
                start = Start(
                    argv=lambda _text, report: program_launcher(argv, None, report),
                    environment={**host.environment, "PATH": DEFAULT_PATH},
                    cwd=str(self._paths.workdir),
                    descriptors=descriptors,
                    on_host=host,
                )
                return self._run_to_end(start, request, connection, limits=limits)
            filtered = call.looks and grants.KUBE in call.grants
            network = self._network(self._sandboxes.brokers) if filtered else None

            def inside(_text: int, report: int) -> list[str]:
                return program_launcher(argv, limits, report)

            return self._start(
                self._sandboxes.for_remedy(call, network),
                inside,
                request,
                connection,
                afterwards,
                descriptors=descriptors,
                limits=limits,
            )

    @contextmanager
    def _pinned(self, call: RemedyCall) -> Iterator[tuple[Argv | None, tuple[int, ...]]]:
        """Give the vector with the file of its program or script, and descriptors that it names.

        sudo closes descriptors, so that it gets a private copy of the script.
        """
        if call.script is None or call.script_at:
            program = program_path(call.argv[0], self._paths)
            if program is None:
                yield None, ()
                return
            argv: Argv = (program, *call.argv[1:])
        else:
            argv = call.argv
        if call.script is None:
            yield argv, ()
        elif call.script_at:
            file = self._paths.run_directory / f"remedy-{secrets.token_hex(8)}"
            try:
                file.touch(mode=0o600, exist_ok=False)
                file.write_bytes(call.script)
                file.chmod(0o500)
                yield (*argv[: call.script_at], str(file), *argv[call.script_at + 1 :]), ()
            finally:
                file.unlink(missing_ok=True)
        else:
            with memory_file(call.script) as script:
                yield (f"/proc/self/fd/{script}", *argv[1:]), (script,)

    def _check_directory(self, decision: Decision, cwd: str) -> Decision:
        """Deny a program on the host outside the directories of the run."""
        if decision.remedy or decision.is_denied or not self._runs_on_host(decision):
            return decision
        only_looks = self._sandboxes is not None and decision.grant != grants.HOST
        if only_looks or self._paths.is_own_directory(cwd):
            return decision
        workdir = self._paths.workdir
        return _denied("not there", f"On the host nothing runs in {cwd}: `cd {workdir}` first.")

    def _in_own_files(self, decision: Decision, cwd: str) -> Decision:
        """Let a program that looks at temporary files of the run look there."""
        if decision.grant != grants.PROCESSES or decision.argv[0] not in ALSO_IN_SANDBOX:
            return decision
        own = self._sandboxes.own_temporary() if self._sandboxes else set()
        for word in ("", *decision.argv[1:]):
            place = os.path.normpath(os.path.join(cwd, word))
            if place == TEMPORARY and own:
                return replace(decision, grant="")
            if place.startswith(f"{TEMPORARY}/") and place.split("/")[2] in own:
                return replace(decision, grant="")
        return decision

    def _runs_on_host(self, decision: Decision) -> bool:
        if decision.remedy:
            return decision.remedy.on_host or self._sandboxes is None
        return decision.grant in ON_HOST or self._sandboxes is None

    # Both.

    @contextmanager
    def _listening(self, call: str) -> Iterator[CallListener]:
        """Serve the shims of one Bash call until the end of the block."""
        listener = CallListener(
            self._paths.calls / f"{secrets.token_hex(8)}.sock",
            lambda connection: self._serve(connection, call),
        )
        with contextlib.closing(listener):
            yield listener

    def _start(
        self,
        sandbox: CommandSandbox,
        inside: Callable[[int, int], list[str]],
        request: Request,
        connection: socket.socket,
        afterwards: ExitStack,
        *,
        text: str = "",
        listener: CallListener | None = None,
        descriptors: tuple[int, ...] = (),
        limits: SandboxLimits | None = None,
    ) -> CommandOutcome:
        with memory_file(sandbox.system_calls) as calls:
            known = ("--seccomp", str(calls)) if sandbox.system_calls else ()

            def argv(command: int, report: int) -> list[str]:
                found = [*sandbox.argv, *known, "--", *inside(command, report)]
                return with_sudo(found, report=report, calls=calls) if sandbox.as_root else found

            start = Start(
                argv=argv,
                environment=sandbox.environment,
                cwd="/",
                text=text,
                descriptors=(*sandbox.descriptors, *descriptors, calls),
                temporary=self._paths.shared_temporary,
            )
            if self._groups.parents:
                group = CommandGroup(self._groups, self._limits)
                afterwards.callback(group.remove)
                group.make()
                start = start.inside(group)
            return self._run_to_end(start, request, connection, listener, limits=limits)

    def _run_to_end(
        self,
        start: Start,
        request: Request,
        connection: socket.socket,
        listener: CallListener | None = None,
        *,
        limits: SandboxLimits | None = None,
    ) -> CommandOutcome:
        return run_command(
            start,
            request,
            connection=connection,
            stopping=self._stopping,
            limits=limits or self._limits,
            listener=listener,
        )

    def _run(
        self,
        judged: Judged,
        slots: threading.BoundedSemaphore,
        start: Callable[[], CommandOutcome],
        connection: socket.socket,
        location: str,
        shell: ShellText | None,
    ) -> tuple[int, str]:
        if not self._has_slot(slots, connection):
            self.record_end(judged.record, NOT_RUN)
            return DENIED, OVER
        began = time.monotonic()
        try:
            outcome = self._tried(start)
        except Exception as error:
            logger.exception("Could not start a command")
            outcome = CommandOutcome(exit_code=DENIED, entered=False, ended_because=f"{error}.")
        finally:
            slots.release()
        exit_code = outcome.exit_code if outcome.entered else DENIED
        self.record_end(
            judged.record,
            CommandEnd(
                exit_code=exit_code,
                run_ms=(time.monotonic() - began) * 1000,
                location=location,
                has_run=outcome.entered,
            ),
        )
        if shell and shell.directory_file and outcome.directory:
            write_directory(shell.directory_file, outcome.directory, self._paths.temp_directory)
        hidden = hidden_from(shell.command, self._paths) if shell and location == "sandbox" else ""
        words = (judged.words, _message(outcome), outcome.notice, hidden)
        return exit_code, "\n".join(filter(None, words))

    def _tried(self, start: Callable[[], CommandOutcome]) -> CommandOutcome:
        """Try again where nothing ran: a path to hide may have disappeared since the lookup."""
        for left in reversed(range(TRIES)):
            try:
                outcome = start()
            except SandboxNotMade as error:
                outcome = CommandOutcome(
                    exit_code=DENIED, entered=False, ended_because="" if left else f"{error}."
                )
            if outcome.entered or outcome.ended_because or self._sandboxes is None:
                break
            self._sandboxes = CommandSandboxes(self._paths, self._limits)
        return outcome

    def _decision(self, decide: Callable[[], Decision]) -> Decision:
        try:
            return decide()
        except Exception:
            logger.exception("The command policy failed; the command does not run")
            return _denied("policy failed", "The command policy failed: it did not run.")

    def _recorded(self, record: DecisionRecord) -> str:
        """Record a decision; return a text if that failed."""
        try:
            with self._record_lock:
                self._on_decision(record)
        except Exception:
            logger.exception("Could not record a decision; its command does not run")
            return "The decision on this command could not be recorded: it did not run."
        return ""

    def _wait_for_approval(
        self,
        record: DecisionRecord,
        decision: Decision,
        decide: Callable[[], Decision],
        gone: select.poll,
    ) -> ApprovalAnswer:
        """Wait for an approver, and decide again: the decision must be the same."""
        question = ApprovalQuestion(record)
        self._ask(question)
        if question.answer is None:
            self._say_that_it_waits(record)
        while question.answer is None and not gone.poll(POLL_SECONDS * 1000):
            pass
        answer = question.answer
        if answer is None or (answer.approved and gone.poll(0)):
            question.left = True
            return ApprovalAnswer(approved=False, words=NOT_YET)
        if answer.approved and self._decision(decide) != decision:
            return ApprovalAnswer(
                approved=False,
                words="It was approved, but the decision has changed since: it did not run.",
            )
        question.began = True
        return answer

    def _say_that_it_waits(self, record: DecisionRecord) -> None:
        """Say so on stderr of the Bash call, before it can be cancelled.

        The CLI kills a call and reads its output at once: what the client is told then is lost.
        Brokers do not know whose call their client belongs to, so each running call says it.
        """
        named = textwrap.shorten(record.command, LONGEST_NAMED, placeholder=" …")
        text = WAITS.format(command=named).encode("utf-8", "replace")
        with self._errors_lock:
            own = [found for call, found in self._errors.items() if call == record.parent]
            for descriptor in own or self._errors.values():
                _write_at_once(descriptor, text)

    @contextmanager
    def _saying(self, call: str, request: Request) -> Iterator[None]:
        """Let programs of a Bash call write on its stderr until the end of the block."""
        with self._errors_lock:
            self._errors[call] = request.outputs[1]
        try:
            yield
        finally:
            with self._errors_lock:
                del self._errors[call]

    def _refusal(self, record: DecisionRecord) -> CommandRefusal | None:
        try:
            return self._objection(record)
        except Exception:
            logger.exception("Could not check whether a command may run now; it does not run")
            return CommandRefusal(
                "not checked", "It could not be checked whether this may run now: try again."
            )

    def _has_slot(self, slots: threading.BoundedSemaphore, connection: socket.socket) -> bool:
        """Wait for a slot; return False if the run ends or the client disconnects."""
        waiting = select.poll()
        waiting.register(self._stopping, select.POLLIN)
        waiting.register(connection, select.POLLRDHUP)
        while not slots.acquire(timeout=POLL_SECONDS):
            if waiting.poll(0):
                return False
        return True


def after_sudo(argv: Argv) -> Argv:
    """Return the program behind `sudo -n --`."""
    return argv[argv.index("--") + 1 :] if argv[0] == "sudo" else argv


def exec_request(request: Request) -> ExecRequest:
    """Return the vector and its variables as text; the program has its plain name."""
    words = [word.decode() for word in request.body.split(b"\0")]
    pairs = (pair.partition(b"=") for pair in request.environment.split(b"\0"))
    return ExecRequest(
        argv=(posixpath.basename(words[0]), *words[1:]),
        cwd=request.cwd,
        environment={
            name.decode(): value.decode("utf-8", "replace")
            for name, _sign, value in pairs
            if name.decode("utf-8", "replace") in PASSED_VARIABLES
        },
    )


def _record(
    decision: Decision, command: str, cwd: str, parent: str, decision_ms: float
) -> DecisionRecord:
    return DecisionRecord(
        command=command,
        verdict=decision.verdict,
        rule=decision.rule,
        reason=decision.reason,
        grant=decision.grant,
        actions=decision.actions,
        changes=decision.changes,
        effects=decision.effects,
        allowed_from=decision.allowed_from,
        remedy=decision.remedy.stamp if decision.remedy else "",
        decision_ms=decision_ms,
        cwd=cwd,
        parent=parent,
        at=datetime.now(UTC),
    )


def _denied(rule: str, reason: str) -> Decision:
    return Decision(verdict=Verdict.DENY, rule=rule, reason=reason)


# What a sandbox does not show of what the text of a Bash call names. It decides nothing: it tells
# the model why an output may differ from what a person would see.

OWN_WORDS = "claudeops: "
CONNECTS = re.compile(r"/dev/(?:tcp|udp)/|\bsocket\.(?:socket|create)|IO::Socket|net\.connect")
HIDDEN_FROM_TEXT = (
    (
        re.compile(
            r"/proc/(?!(?:cpuinfo|meminfo|loadavg|uptime|version|stat|swaps|mdstat|sys)\b)\S"
        ),
        "below /proc a sandbox has its own processes, mounts and network; ps, lsof, ss, ip and "
        "findmnt show those of the host",
    ),
    (
        CONNECTS,
        "in a sandbox open ports of the host take connections and HTTP that reads, nothing else, "
        "and other hosts none; use the client of the service, or `nc -z HOST PORT`",
    ),
    (
        re.compile(r"(?<![\w.])(?:/var)?/run(?:/(?!claudeops)|\b)"),
        "of /run a sandbox shows only what everybody may read in it and files *.pid",
    ),
    (
        re.compile(r"\b(?:ctr|crictl|nerdctl|lxc|incus|machinectl)\b"),
        "the sockets of engines other than Docker and Podman are hidden",
    ),
    (
        re.compile(r"\bfind\s+/(?=\s|\Z)"),
        "a sandbox hides homes, /run, /var/tmp and parts of /tmp; du shows what is there",
    ),
    (
        re.compile(r"\bgit\b.*\b(?:fetch|pull)\b"),
        "a working directory that is read-only cannot take what git fetches; `git ls-remote` shows "
        "what is there",
    ),
    (
        re.compile(r"\A[^>]*(?<![\w.])/(?:var/)?tmp\b[^>]*\Z"),
        "a sandbox has the /tmp of this run; of the host's it shows what everybody may read",
    ),
)
PGREP = re.compile(r"\bpgrep\b[^|;&]* -[a-zA-Z]*f")
FINDS_ITSELF = (
    "`pgrep -f` also finds the processes of this call (bash, tool-client), whose words "
    "match; `pgrep -x NAME` and `systemctl status` do not"
)
HOMES_IN_TEXT = re.compile(r"(?<![\w./])(?:~|\$HOME\b|/(?:home|root)(?:/[\w.@+-]+)*)")
HIDDEN_HOMES = (
    "of homes a sandbox shows the working directory alone; ls, stat, tree and du show names and "
    "sizes of all, and the operator can grant `read:PATH`"
)


def hidden_from(text: str, paths: RunPaths) -> str:
    """Return a sentence about what a text names and its sandbox does not show as the host has it.

    One plain command of a program that shows the host as it is needs none.
    """
    found = [FINDS_ITSELF] if PGREP.search(text) else []
    argv = read_one_command(text)
    program = posixpath.basename(argv[0]) if argv else ""
    if program in SHIMS and not (program in ALSO_IN_SANDBOX and TEMPORARY in text):
        return f"{OWN_WORDS}{found[0]}." if found else ""
    found += [words for pattern, words in HIDDEN_FROM_TEXT if pattern.search(text)]
    shown = (str(paths.workdir), *paths.grants.readable, *paths.grants.writable)
    homes = HOMES_IN_TEXT.findall(text)
    if any(not any(is_inside(home, path) for path in shown) for home in homes):
        found.append(HIDDEN_HOMES)
    return f"{OWN_WORDS}{'; '.join(found)}." if found else ""


LEFT_BEHIND = (
    "The command left {count} in its sandbox; they were ended with it. Nothing can be started here "
    "that goes on running: use `systemctl`, `docker` or what the system has for that."
)


def _message(outcome: CommandOutcome) -> str:
    """Return the message for the model, besides the output of the command."""
    if not outcome.entered:
        return f"The command did not run: its sandbox could not be started. {outcome.ended_because}"
    if outcome.left_behind and not outcome.ended_because:
        number = outcome.left_behind
        return LEFT_BEHIND.format(count=f"{number} process{'es' if number > 1 else ''}")
    return outcome.ended_because
