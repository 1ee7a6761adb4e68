"""Runs each Bash command of the CLI in a command sandbox, as the command policy decides.

The command runner serves a Unix socket in the run directory, in threads of the worker process. It
reads a command, decides, records the decision and runs the command. A command that needs approval
waits before it runs and is decided on again after the approval. If a step fails, the command does
not run. The callbacks are called from these threads, one at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import select
import signal
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from escalation.agent.process_tree import ProcessId, family, process_id
from escalation.command_policy import grants
from escalation.command_policy.decision import Decision
from escalation.sandbox.command_sandbox import ENTERED, CommandSandboxes, HostCommand, launcher
from escalation.sandbox.layout import RunPaths
from escalation.sandbox.limits import CommandGroup, ControlGroups, SandboxLimits, control_groups
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


# The protocol between the command client and the command runner.

LONGEST_REQUEST = 64 * 1024 * 1024
LONGEST_DIRECTORY = 4096
FIRST_LINE = re.compile(rb"(\d{1,10}) (\d{1,10})\n")
FIRST_LINE_BYTES = 32
DESCRIPTORS = 2
MOST_DESCRIPTORS = 16
TIMEOUT_SECONDS = 30.0
# No directories: a command could leave its sandbox through the descriptor of one.
KINDS = (stat.S_ISREG, stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISCHR)


class BadRequest(Exception):
    """The request is invalid; nothing runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRequest:
    text: bytes
    cwd: str
    stdout: int
    stderr: int

    def close(self) -> None:
        _close([self.stdout, self.stderr])


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the client runs as the user of this process."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    _pid, uid, _gid = struct.unpack("3i", credentials)
    return bool(uid == os.getuid())


def read_request(connection: socket.socket) -> ToolRequest:
    connection.settimeout(TIMEOUT_SECONDS)
    try:
        data, descriptors, flags, _address = socket.recv_fds(
            connection, 65536, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
    except OSError as error:
        raise BadRequest(f"the request could not be received: {error}") from error
    try:
        # Read to the end even if invalid: unread data would reset the connection.
        text, directory = _read_body(connection, data)
        if flags & socket.MSG_CTRUNC or len(descriptors) != DESCRIPTORS:
            raise BadRequest("the request must have two descriptors")
        if not all(_is_output(descriptor) for descriptor in descriptors):
            raise BadRequest("the descriptors of the request cannot be written")
    except BaseException:
        _close(descriptors)
        raise
    return ToolRequest(
        text=text,
        cwd=directory.decode("utf-8", "surrogateescape"),
        stdout=descriptors[0],
        stderr=descriptors[1],
    )


def answer(connection: socket.socket, exit_code: int, message: str) -> None:
    """Send exit code and message, unless the client has disconnected."""
    text = f"{message.rstrip()}\n".encode("utf-8", "replace") if message else b""
    with contextlib.suppress(OSError):
        connection.settimeout(TIMEOUT_SECONDS)
        connection.sendall(b"%d %d\n" % (exit_code, len(text)) + text)
        connection.shutdown(socket.SHUT_WR)


def _read_body(connection: socket.socket, data: bytes) -> tuple[bytes, bytes]:
    pieces = bytearray(data)
    while b"\n" not in pieces[:FIRST_LINE_BYTES] and len(pieces) < FIRST_LINE_BYTES:
        pieces += _more(connection)
    line = FIRST_LINE.match(pieces)
    if line is None:
        raise BadRequest("the first line of the request is invalid")
    text_length, directory_length = int(line[1]), int(line[2])
    if text_length > LONGEST_REQUEST or directory_length > LONGEST_DIRECTORY:
        raise BadRequest("the request is too long")
    start = line.end()
    end = start + text_length + directory_length
    while len(pieces) < end:
        pieces += _more(connection)
    body = bytes(pieces[start:end])
    return body[:text_length], body[text_length:]


def _more(connection: socket.socket) -> bytes:
    try:
        data = connection.recv(1024 * 1024)
    except OSError as error:
        raise BadRequest(f"the request is incomplete: {error}") from error
    if not data:
        raise BadRequest("the request is incomplete")
    return data


def _is_output(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return any(is_kind(mode) for is_kind in KINDS)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


# One command as a process: start, supervision, end.

OUTPUT_POLL_SECONDS = 1.0
GRACE_SECONDS = 2.0
LONGEST_REPORT = 16 * 1024
# That of the worker is narrower; files of an agent are for other services, too.
ORDINARY_UMASK = 0o022
PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandOutcome:
    exit_code: int
    entered: bool
    """Return whether the shell of the command started."""
    directory: str = ""
    """The working directory at the end, after exit code 0."""
    ended_because: str = ""
    """The reason why the command runner ended it, for the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Describes the start of a command whose descriptors have no numbers yet."""

    argv: Callable[[int, int], Sequence[str]]
    """Takes the numbers of the descriptors for the command and for the report of the shell."""
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
    limits: SandboxLimits,
) -> CommandOutcome:
    """Run a command to its end; raise OSError if it cannot be started.

    The calling thread must wait, because bubblewrap dies with the thread that started it.
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
        running = _RunningCommand(process, start.on_host, request, limits)
        try:
            running.until_end(connection, stopping)
        finally:
            running.end()
        return _outcome(process.returncode, running.ended_because, _read_report(report))


class _RunningCommand:
    """A started command, until it has ended or is stopped."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        on_host: HostCommand | None,
        request: ToolRequest,
        limits: SandboxLimits,
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
                ready = {descriptor for descriptor, _event in poll.poll(self._timeout_ms())}
                if ended in ready:
                    return
                if stopping in ready:
                    self.ended_because = "The run is over."
                    return
                if connection.fileno() in ready and not self._pass_signals(connection):
                    self.ended_because = "The CLI cancelled the command."
                    return
                if self._is_over_time() or self._prints_too_much() or self._runs_too_long():
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

    def _prints_too_much(self) -> bool:
        """Check the size of output files; a pipe makes the command wait instead."""
        if any(os.fstat(descriptor).st_size > most for descriptor, most in self._outputs):
            self.ended_because = "It printed too much and was ended. Print less, or count."
        return bool(self.ended_because)


def _outcome(returncode: int, ended_because: str, report: bytes) -> CommandOutcome:
    exit_code = returncode if returncode >= 0 else 128 - returncode
    entered, _sep, directory = report.partition(ENTERED)
    path = os.fsdecode(directory.removesuffix(b"\n"))
    return CommandOutcome(
        exit_code=exit_code or (137 if ended_because else 0),
        entered=report.startswith(ENTERED),
        directory=path if path.startswith("/") and not entered else "",
        ended_because=ended_because,
    )


@contextlib.contextmanager
def _text_file(command: str) -> Iterator[int]:
    """Store the command in a sealed memory file, which cannot be changed."""
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
    """Give the writing end as an object: after closing, another thread may get its number."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    with open(reading, "rb", buffering=0), open(writing, "wb", buffering=0) as writer:
        yield reading, writer


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
            _piece, index = _quoted(text, index)
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


def _quoted(text: str, index: int) -> tuple[str, int]:
    """Return the text of the quotes that open here, and their end."""
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
    """The decision on a command, recorded before it runs."""

    command: str
    verdict: Verdict
    rule: str
    reason: str
    grants: tuple[str, ...]
    actions: tuple[str, ...]
    decision_ms: float
    cwd: str
    at: datetime
    changes: tuple[str, ...] = ()
    may_repeat: bool = False
    allowed_from: int = 0
    call: str = field(default_factory=lambda: secrets.token_hex(4))
    """Distinguishes two calls of the same command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEnd:
    exit_code: int
    run_ms: float
    location: str
    """"sandbox", "host", or "" for a command that did not run."""
    has_run: bool = True
    """False if it was denied or its sandbox could not be started."""


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
"""Commands that run at the same time; others wait."""
WAITING = 512
TRIES = 3
KEPT_OF_UNREADABLE = 1000
POLL_SECONDS = 0.2
LEAVE_SECONDS = 15.0

Decide = Callable[[str], Decision]
NOT_RUN = CommandEnd(exit_code=DENIED, run_ms=0, location="", has_run=False)
Ask = Callable[[ApprovalQuestion], None]
"""Forwards a question and returns at once; another thread settles it later."""
NOT_YET = (
    "No approver has answered yet, so it did not run. The question stays open for a while: run "
    "exactly the same command again to find the answer."
)


def _ignore_end(record: DecisionRecord, end: CommandEnd) -> None:
    """Default for a caller that records no ends."""


@dataclass(frozen=True, slots=True)
class CommandRefusal:
    """The reason why a command that the policy allows does not run now."""

    rule: str
    reason: str


def _no_objection(record: DecisionRecord) -> CommandRefusal | None:
    return None


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
    ) -> None:
        """`objection` is called for each command that is not denied, from its thread."""
        self._ask = ask
        self._paths = paths
        self._objection = objection
        self._decide = decide
        self._on_decision = on_decision
        self._on_end = on_end
        self._limits = limits or SandboxLimits()
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._record_lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._stopping = -1
        self._groups = ControlGroups()
        self._sandboxes: CommandSandboxes | None = None

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve commands until the end of the block, then stop those that still run."""
        self._groups = control_groups()
        self._sandboxes = (
            CommandSandboxes(self._paths, self._limits) if self._paths.sandboxed else None
        )
        self._stopping = os.eventfd(0, os.EFD_CLOEXEC)
        listener = self._listener()
        accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        try:
            accepting.start()
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
            if not any(thread.is_alive() for thread in self._threads):
                os.close(self._stopping)

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
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads = {one for one in self._threads if one.is_alive()} | {thread}
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                if not is_same_user(connection):
                    raise BadRequest("it comes from another user")
                request = read_request(connection)
            except BadRequest as error:
                logger.warning("The command runner refused a request: %s", error)
                answer(connection, DENIED, f"The command runner refuses this request: {error}.")
                return
            # Cleanup that the client need not wait for.
            with ExitStack() as afterwards:
                with contextlib.closing(request):
                    exit_code, message = self._handle(request, connection, afterwards)
                answer(connection, exit_code, message)

    def _handle(
        self, request: ToolRequest, connection: socket.socket, afterwards: ExitStack
    ) -> tuple[int, str]:
        """Decide, record, run, record the end."""
        began = time.perf_counter()
        shell, decision = self._decide_on(request.text)
        decision = self._check_directory(decision, request.cwd)
        record = DecisionRecord(
            command=shell.command,
            verdict=decision.verdict,
            rule=decision.rule,
            reason=decision.reason,
            grants=tuple(sorted(decision.grants)),
            actions=decision.actions,
            changes=decision.changes,
            may_repeat=decision.may_repeat,
            allowed_from=decision.allowed_from,
            decision_ms=(time.perf_counter() - began) * 1000,
            cwd=request.cwd,
            at=datetime.now(UTC),
        )
        if record.verdict != Verdict.DENY and (refusal := self._refusal(record)):
            decision = _denied(refusal.rule, refusal.reason)
            record = replace(
                record, verdict=Verdict.DENY, rule=refusal.rule, reason=refusal.reason, grants=()
            )
        try:
            with self._record_lock:
                self._on_decision(record)
        except Exception:
            logger.exception("Could not record a decision; its command does not run")
            self._record_end(record, NOT_RUN)
            return DENIED, "The decision on this command could not be recorded: it did not run."
        if decision.verdict == Verdict.DENY:
            self._record_end(record, NOT_RUN)
            return DENIED, decision.reason
        if decision.verdict != Verdict.ASK:
            return self._run(record, decision, shell, request, connection, afterwards)
        answered = self._wait_for_approval(record, decision, request, connection)
        if not answered.approved:
            self._record_end(record, NOT_RUN)
            return DENIED, answered.words
        exit_code, message = self._run(record, decision, shell, request, connection, afterwards)
        return exit_code, "\n".join(filter(None, (answered.words, message)))

    def _wait_for_approval(
        self,
        record: DecisionRecord,
        decision: Decision,
        request: ToolRequest,
        connection: socket.socket,
    ) -> ApprovalAnswer:
        """Wait for an approver, and decide again: the decision must be the same."""
        question = ApprovalQuestion(record)
        self._ask(question)
        gone = select.poll()
        gone.register(self._stopping, select.POLLIN)
        # A byte is a signal: the CLI has cancelled the command.
        gone.register(connection, select.POLLIN | select.POLLRDHUP)
        while question.answer is None and not gone.poll(POLL_SECONDS * 1000):
            pass
        answer = question.answer
        if answer is None or (answer.approved and gone.poll(0)):
            question.left = True
            return ApprovalAnswer(approved=False, words=NOT_YET)
        if answer.approved and self._decide_on(request.text)[1] != decision:
            return ApprovalAnswer(
                approved=False,
                words="It was approved, but the decision has changed since: it did not run.",
            )
        question.began = True
        return answer

    def _refusal(self, record: DecisionRecord) -> CommandRefusal | None:
        try:
            return self._objection(record)
        except Exception:
            logger.exception("Could not check whether a command may run now; it does not run")
            return CommandRefusal(
                "not checked", "It could not be checked whether this may run now: try again."
            )

    def _decide_on(self, text: bytes) -> tuple[ShellText, Decision]:
        """Decide on the command; deny text that cannot be parsed."""
        try:
            shell = read_bytes(text)
        except NotACommand as error:
            unreadable = text[:KEPT_OF_UNREADABLE].decode("utf-8", "replace").replace("\0", "�")
            reason = f"This command did not run: {error}."
            return ShellText(command=unreadable), _denied("not readable", reason)
        try:
            decision = self._decide(shell.command)
        except Exception:
            logger.exception("The command policy failed; the command does not run")
            return shell, _denied("policy failed", "The command policy failed: it did not run.")
        if decision.verdict == Verdict.ISOLATE and self._sandboxes is None:
            return shell, _denied(decision.rule, decision.reason or "No sandbox is in force here.")
        return shell, decision

    def _run(
        self,
        record: DecisionRecord,
        decision: Decision,
        shell: ShellText,
        request: ToolRequest,
        connection: socket.socket,
        afterwards: ExitStack,
    ) -> tuple[int, str]:
        if not self._has_slot(connection):
            self._record_end(record, NOT_RUN)
            return DENIED, "The run is over: this command did not run."
        began = time.monotonic()
        try:
            outcome = self._execute(decision, shell.command, request, connection, afterwards)
            for _again in range(TRIES - 1):
                if outcome.entered or outcome.ended_because or not self._paths.sandboxed:
                    break
                # Nothing ran: a path to hide may have disappeared since the lookup.
                self._sandboxes = CommandSandboxes(self._paths, self._limits)
                outcome = self._execute(decision, shell.command, request, connection, afterwards)
        except Exception as error:
            logger.exception("Could not start a command")
            outcome = CommandOutcome(exit_code=DENIED, entered=False, ended_because=f"{error}.")
        finally:
            self._slots.release()
        exit_code = outcome.exit_code if outcome.entered else DENIED
        run_ms = (time.monotonic() - began) * 1000
        location = "host" if self._runs_on_host(decision) else "sandbox"
        self._record_end(
            record,
            CommandEnd(
                exit_code=exit_code, run_ms=run_ms, location=location, has_run=outcome.entered
            ),
        )
        if outcome.directory and shell.directory_file:
            write_directory(shell.directory_file, outcome.directory, self._paths.temp_directory)
        return exit_code, _message(decision, outcome)

    def _execute(
        self,
        decision: Decision,
        command: str,
        request: ToolRequest,
        connection: socket.socket,
        afterwards: ExitStack,
    ) -> CommandOutcome:
        on_host = self._runs_on_host(decision)
        start = self._start_on_host(request) if on_host else self._start(decision, request)
        if self._groups.parents and not on_host:
            group = CommandGroup(self._groups, self._limits)
            afterwards.callback(group.remove)
            group.make()
            start = start.inside(group)
        return run_command(
            start,
            command,
            request,
            connection=connection,
            stopping=self._stopping,
            limits=self._limits,
        )

    def _check_directory(self, decision: Decision, cwd: str) -> Decision:
        """Deny a command on the host outside the directories of the run.

        The command policy resolves relative paths from the working directory.
        """
        if decision.verdict == Verdict.DENY or not self._runs_on_host(decision):
            return decision
        if self._paths.is_own_directory(cwd):
            return decision
        workdir = self._paths.workdir
        return _denied("not there", f"On the host nothing runs in {cwd}: `cd {workdir}` first.")

    def _runs_on_host(self, decision: Decision) -> bool:
        return grants.HOST in decision.grants or self._sandboxes is None

    def _start(self, decision: Decision, request: ToolRequest) -> Start:
        assert self._sandboxes is not None, "without sandboxes a command runs on the host"
        sandbox = self._sandboxes.sandbox_for(decision.grants, request.cwd)
        return Start(
            argv=lambda command, report: [
                *sandbox.argv,
                *launcher(self._limits, command=command, report=report),
            ],
            environment=sandbox.environment,
            cwd="/",
        )

    def _start_on_host(self, request: ToolRequest) -> Start:
        host = HostCommand(self._paths)
        return Start(
            argv=lambda command, report: launcher(None, command=command, report=report),
            environment=host.environment,
            cwd=request.cwd,
            on_host=host,
        )

    def _has_slot(self, connection: socket.socket) -> bool:
        """Wait for a slot; return False if the run ends or the client disconnects."""
        waiting = select.poll()
        waiting.register(self._stopping, select.POLLIN)
        waiting.register(connection, select.POLLRDHUP)
        while not self._slots.acquire(timeout=POLL_SECONDS):
            if waiting.poll(0):
                return False
        return True

    def _record_end(self, record: DecisionRecord, end: CommandEnd) -> None:
        """Record the end of a command; a failure is only logged."""
        try:
            with self._record_lock:
                self._on_end(record, end)
        except Exception:
            logger.exception("Could not record the end of a command")


def _denied(rule: str, reason: str) -> Decision:
    return Decision(verdict=Verdict.DENY, rule=rule, reason=reason)


def _message(decision: Decision, outcome: CommandOutcome) -> str:
    """Return the message for the model, besides the output of the command."""
    if not outcome.entered:
        return f"The command did not run: its sandbox could not be started. {outcome.ended_because}"
    if decision.verdict == Verdict.ISOLATE and outcome.exit_code != 0:
        return f"{outcome.ended_because} {decision.reason}".strip()
    return outcome.ended_because
