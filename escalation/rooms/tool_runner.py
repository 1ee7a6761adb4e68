"""The tool runner: takes each command of the CLI's tools, asks the gate, and runs it in a room.

It serves a Unix socket in the run's directory, as threads of the process that runs the tier. For
each command: read, judge, write down, run. What a person has to approve is held before the last
step, outside any room, and judged again once it is approved. Whatever goes wrong before, nothing
runs.
The calls into the record come from those threads, one at a time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from escalation.gate import doors
from escalation.gate.decision import Decision, Verdict
from escalation.rooms.directory_file import write_directory
from escalation.rooms.host_command import HostCommand
from escalation.rooms.limits import CommandGroup, ControlGroups, Limits, control_groups
from escalation.rooms.place import RunPlace
from escalation.rooms.questions import Answer, Question, nobody_to_ask
from escalation.rooms.records import CommandEnd, GateRecord
from escalation.rooms.shell_text import NotACommand, ShellText, read_bytes
from escalation.rooms.tool_process import Outcome, Start, run_command
from escalation.rooms.tool_request import (
    BadRequest,
    ToolRequest,
    answer,
    is_our_own,
    read_request,
)
from escalation.rooms.tool_room import ToolRooms, launcher
from escalation.rooms.unix_socket import listening_at

logger = logging.getLogger(__name__)

DENIED = 126
AT_ONCE = 16
"""Commands that run at the same time; more of them wait."""
WAITING = 512
TRIES = 3
"""The kernel lets no CLI pass half of that in one argument."""
KEPT_OF_UNREADABLE = 1000
LOOK_SECONDS = 0.2
LEAVE_SECONDS = 15.0

Decide = Callable[[str], Decision]
NOT_RUN = CommandEnd(exit_code=DENIED, run_ms=0, room="", has_run=False)
Ask = Callable[[Question], None]
"""Hands a question on and comes back at once; it is settled later, from another thread."""
NOT_YET = (
    "Nobody has answered yet, so it did not run. The question stays open for a while: run the very "
    "same command again to find the answer."
)


def _ignore_end(record: GateRecord, end: CommandEnd) -> None:
    """The end is of no interest to this listener."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command that the gate allows does not run all the same."""

    rule: str
    reason: str


def _nothing_against(record: GateRecord) -> Refusal | None:
    return None


class ToolRunner:
    def __init__(
        self,
        place: RunPlace,
        decide: Decide,
        on_decision: Callable[[GateRecord], None],
        on_end: Callable[[GateRecord, CommandEnd], None] = _ignore_end,
        *,
        ask: Ask = nobody_to_ask,
        limits: Limits | None = None,
        objection: Callable[[GateRecord], Refusal | None] = _nothing_against,
    ) -> None:
        """The objection is asked about each command that the gate has let pass, from its thread."""
        self._ask = ask
        self._place = place
        self._objection = objection
        self._decide = decide
        self._on_decision = on_decision
        self._on_end = on_end
        self._limits = limits or Limits()
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._record_lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._stopping = -1
        self._groups = ControlGroups()
        self._rooms: ToolRooms | None = None

    @property
    def limits_in_force(self) -> str:
        """For people."""
        return self._groups.in_force

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Commands are taken until the end of the block; those that still run then are ended."""
        self._groups = control_groups()
        self._rooms = ToolRooms(self._place, self._limits) if self._place.rooms else None
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
                self._place.socket.unlink()
            if not any(thread.is_alive() for thread in self._threads):
                os.close(self._stopping)

    def _listener(self) -> socket.socket:
        listener = listening_at(self._place.socket, WAITING)
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
                # Out of descriptors, or the client is gone again; the others still wait.
                time.sleep(LOOK_SECONDS / 10)
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads = {one for one in self._threads if one.is_alive()} | {thread}
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                if not is_our_own(connection):
                    raise BadRequest("it comes from another user")
                request = read_request(connection)
            except BadRequest as error:
                logger.warning("A request to the tool runner was refused: %s", error)
                answer(connection, DENIED, f"The tool runner refuses this request: {error}.")
                return
            # What need not be waited for comes after the answer.
            with ExitStack() as afterwards:
                with contextlib.closing(request):
                    exit_code, message = self._carry_out(request, connection, afterwards)
                answer(connection, exit_code, message)

    def _carry_out(
        self, request: ToolRequest, connection: socket.socket, afterwards: ExitStack
    ) -> tuple[int, str]:
        """Judge, write down, run, write down."""
        began = time.perf_counter()
        shell, decision = self._judge(request.text)
        decision = self._where_it_was_judged(decision, request.cwd)
        record = GateRecord(
            command=shell.command,
            verdict=decision.verdict,
            rule=decision.rule,
            reason=decision.reason,
            doors=tuple(sorted(decision.doors)),
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
                record, verdict=Verdict.DENY, rule=refusal.rule, reason=refusal.reason, doors=()
            )
        try:
            with self._record_lock:
                self._on_decision(record)
        except Exception:
            logger.exception("A decision could not be written down, so its command does not run")
            self._ended(record, NOT_RUN)
            return DENIED, "The decision on this command could not be written down: it did not run."
        if decision.verdict == Verdict.DENY:
            self._ended(record, NOT_RUN)
            return DENIED, decision.reason
        if decision.verdict != Verdict.ASK:
            return self._run(record, decision, shell, request, connection, afterwards)
        said = self._held(record, decision, request, connection)
        if not said.approved:
            self._ended(record, NOT_RUN)
            return DENIED, said.words
        exit_code, message = self._run(record, decision, shell, request, connection, afterwards)
        return exit_code, "\n".join(filter(None, (said.words, message)))

    def _held(
        self,
        record: GateRecord,
        decision: Decision,
        request: ToolRequest,
        connection: socket.socket,
    ) -> Answer:
        """Wait for a person; approved is what is judged now as it was judged then."""
        question = Question(record)
        self._ask(question)
        gone = select.poll()
        gone.register(self._stopping, select.POLLIN)
        # A signal that is passed on comes as a byte: the CLI has given the command up.
        gone.register(connection, select.POLLIN | select.POLLRDHUP)
        while question.answer is None and not gone.poll(LOOK_SECONDS * 1000):
            pass
        answer = question.answer
        if answer is None or (answer.approved and gone.poll(0)):
            question.left = True
            return Answer(approved=False, words=NOT_YET)
        if answer.approved and self._judge(request.text)[1] != decision:
            return Answer(
                approved=False,
                words="It was approved, but is judged otherwise by now: it did not run.",
            )
        question.began = True
        return answer

    def _refusal(self, record: GateRecord) -> Refusal | None:
        try:
            return self._objection(record)
        except Exception:
            logger.exception("Whether a command may run now could not be asked, so it does not")
            return Refusal("not asked", "Whether this may run now could not be asked: try again.")

    def _judge(self, text: bytes) -> tuple[ShellText, Decision]:
        """Only what can be read is judged; everything else is denied."""
        try:
            shell = read_bytes(text)
        except NotACommand as error:
            unreadable = text[:KEPT_OF_UNREADABLE].decode("utf-8", "replace").replace("\0", "�")
            reason = f"This command did not run: {error}."
            return ShellText(command=unreadable), _denied("not readable", reason)
        try:
            decision = self._decide(shell.command)
        except Exception:
            logger.exception("The gate failed, so the command does not run")
            return shell, _denied("gate failed", "The gate failed on this command: it did not run.")
        if decision.verdict == Verdict.CONTAIN and self._rooms is None:
            return shell, _denied(decision.rule, decision.reason or "There is no room for it here.")
        return shell, decision

    def _run(
        self,
        record: GateRecord,
        decision: Decision,
        shell: ShellText,
        request: ToolRequest,
        connection: socket.socket,
        afterwards: ExitStack,
    ) -> tuple[int, str]:
        if not self._has_slot(connection):
            self._ended(record, NOT_RUN)
            return DENIED, "The run is over: this command did not run."
        began = time.monotonic()
        try:
            outcome = self._in_its_place(decision, shell.command, request, connection, afterwards)
            for _again in range(TRIES - 1):
                if outcome.entered or outcome.ended_because or not self._place.rooms:
                    break
                # Nothing ran. What was to be hidden may be gone since it was looked up: look again.
                self._rooms = ToolRooms(self._place, self._limits)
                outcome = self._in_its_place(
                    decision, shell.command, request, connection, afterwards
                )
        except Exception as error:
            logger.exception("A command could not be started")
            outcome = Outcome(exit_code=DENIED, entered=False, ended_because=f"{error}.")
        finally:
            self._slots.release()
        exit_code = outcome.exit_code if outcome.entered else DENIED
        run_ms = (time.monotonic() - began) * 1000
        room = "host" if self._belongs_on_host(decision) else "room"
        self._ended(
            record,
            CommandEnd(exit_code=exit_code, run_ms=run_ms, room=room, has_run=outcome.entered),
        )
        if outcome.directory and shell.directory_file:
            write_directory(shell.directory_file, outcome.directory, self._place.temp_directory)
        return exit_code, _message(decision, outcome)

    def _in_its_place(
        self,
        decision: Decision,
        command: str,
        request: ToolRequest,
        connection: socket.socket,
        afterwards: ExitStack,
    ) -> Outcome:
        on_host = self._belongs_on_host(decision)
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

    def _where_it_was_judged(self, decision: Decision, cwd: str) -> Decision:
        """The gate reads paths from the working directory. A room holds the others; here nothing
        would."""
        if decision.verdict == Verdict.DENY or not self._belongs_on_host(decision):
            return decision
        if self._place.is_own_ground(cwd):
            return decision
        where = self._place.workdir
        return _denied("not there", f"On the host nothing runs in {cwd}: `cd {where}` first.")

    def _belongs_on_host(self, decision: Decision) -> bool:
        return doors.HOST in decision.doors or self._rooms is None

    def _start(self, decision: Decision, request: ToolRequest) -> Start:
        assert self._rooms is not None, "without rooms a command runs on the host"
        room = self._rooms.room_for(decision.doors, request.cwd)
        return Start(
            argv=lambda command, report: [
                *room.argv,
                *launcher(self._limits, command=command, report=report),
            ],
            environment=room.environment,
            cwd="/",
        )

    def _start_on_host(self, request: ToolRequest) -> Start:
        host = HostCommand(self._place)
        return Start(
            argv=lambda command, report: launcher(None, command=command, report=report),
            environment=host.environment,
            cwd=request.cwd,
            on_host=host,
        )

    def _has_slot(self, connection: socket.socket) -> bool:
        """Wait for one; False where the run ends or the client goes meanwhile."""
        waiting = select.poll()
        waiting.register(self._stopping, select.POLLIN)
        waiting.register(connection, select.POLLRDHUP)
        while not self._slots.acquire(timeout=LOOK_SECONDS):
            if waiting.poll(0):
                return False
        return True

    def _ended(self, record: GateRecord, end: CommandEnd) -> None:
        """It has run, or not, whether that can be written down or not."""
        try:
            with self._record_lock:
                self._on_end(record, end)
        except Exception:
            logger.exception("The end of a command could not be written down")


def _denied(rule: str, reason: str) -> Decision:
    return Decision(verdict=Verdict.DENY, rule=rule, reason=reason)


def _message(decision: Decision, outcome: Outcome) -> str:
    """What the model is told besides the command's own output."""
    if not outcome.entered:
        return f"The command did not run: its room could not be entered. {outcome.ended_because}"
    if decision.verdict == Verdict.CONTAIN and outcome.exit_code != 0:
        return f"{outcome.ended_because} {decision.reason}".strip()
    return outcome.ended_because
