"""Checks of the commands of one session: bypass, cooldowns, approvals, injection.

The command runner calls from threads of its own; the thread that reads the CLI writes the record.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

from django.conf import settings
from django.db import DatabaseError, OperationalError
from django.utils import timezone

from escalation.agent import stream as shape
from escalation.agent.process import ReaderWakeup
from escalation.command_policy.decision import Decision, ExecRequest, read_one_command
from escalation.command_policy.understanding import CommandEffect
from escalation.incidents import recorder
from escalation.queue import installation_lock
from escalation.run.manifest import CurrentManifest, manifest_of_cycle
from escalation.run.recorder import Recorder
from escalation.sandbox.command_runner import (
    ApprovalAnswer,
    ApprovalQuestion,
    CommandEnd,
    CommandRefusal,
    DecisionRecord,
)
from escalation.sandbox.ssh_agent import ssh_host
from escalation.supervisor import approvals, cooldowns
from escalation.supervisor.approvals import CommandAsked
from escalation.supervisor.cooldowns import Reached, effects_of
from escalation.supervisor.successors import Lineage
from sessions_app.models import Approval, Change, Cycle, Remedy, Session, SessionEvent
from sessions_app.models.session import SPOKEN, EventKind, Verdict
from sessions_app.redaction.redact import redacted
from sessions_app.text import mapping, one_line
from sessions_app.tiers import LOWEST_TIER

BASH = "Bash"
# Beginnings of the result of a command that ran and failed; other errors are the CLI's refusals.
RAN_AND_FAILED = ("Exit code", "Command failed", "Command timed out")
# The whole result of a command that the CLI killed before it printed anything.
KILLED = ("Exit code 130", "Exit code 137", "Exit code 143")


class BypassCheck:
    """Finds Bash calls of the stream that ran without a decision of the command policy.

    The policy decides before a command runs, so a result without a decision means that the command
    bypassed the sandbox (for example, a CLI that ignores the shell prefix). Decisions come from
    the command runner's threads, lines from the thread that reads the CLI.

    A CLI that is stopped kills its commands, sometimes before their client has asked for a
    decision: from then on a killed command without output is no sign that it has run.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decided: Counter[str] = Counter()
        self._asked: dict[str, str] = {}
        self._is_stopping = False

    def note_stop(self) -> None:
        self._is_stopping = True

    def decided(self, command: str) -> None:
        with self._lock:
            self._decided[normalised(command)] += 1

    def look_at(self, line: Mapping[str, Any]) -> str:
        """Return the first command of the line that ran without a decision, or an empty string."""
        for call in shape.calls_of(line):
            if call.get("name") == BASH:
                command = shape.text_in(mapping(call.get("input")).get("command"))
                self._asked[shape.text_in(call.get("id"))] = command
        for result in shape.results_of(line):
            command = self._asked.pop(shape.text_in(result.get("tool_use_id")), "")
            if not command or not _has_run(result) or self._was_decided(command):
                continue
            if not (self._is_stopping and shape.output_of(result).strip() in KILLED):
                return command
        return ""

    def _was_decided(self, command: str) -> bool:
        with self._lock:
            if not self._decided[normalised(command)]:
                return False
            self._decided[normalised(command)] -= 1
            return True


def _has_run(result: Mapping[str, Any]) -> bool:
    return not result.get("is_error") or shape.output_of(result).startswith(RAN_AND_FAILED)


logger = logging.getLogger(__name__)
CHANGE_LOOK_SECONDS = 0.2
COOLDOWN_RULE = "cooldown"
OVER = CommandRefusal(COOLDOWN_RULE, "The session is over: this command did not run.")
NOT_COUNTED = CommandRefusal(
    COOLDOWN_RULE,
    "The cooldown could not be checked, so this command did not run: try again in a minute.",
)
WITHDRAWN = CommandRefusal(
    "no such remedy",
    "A person has changed or removed this remedy since the session began: it did not run. Say in "
    "your report what should be run.",
)


class _Question:
    def __init__(self, record: DecisionRecord, effects: tuple[CommandEffect, ...]) -> None:
        self.record = record
        self.effects = effects
        self.answered = threading.Event()
        self.refusal: CommandRefusal | None = OVER

    def answer(self, refusal: CommandRefusal | None) -> None:
        self.refusal = refusal
        self.answered.set()


class RunChanges:
    """Counts and records the changes of one session.

    A command that restarts or redeploys is counted before it runs. The thread that reads the CLI
    answers one question after another under the installation lock, so of many commands at once only
    as many run as the cooldown allows. A change is stored before its command runs.
    """

    def __init__(self, session: Session, wakeup: ReaderWakeup | None = None) -> None:
        self._session = session
        self._wakeup = wakeup or ReaderWakeup()
        self._questions: SimpleQueue[_Question] = SimpleQueue()
        self._unwritten: list[Callable[[], None]] = []
        self._closed = threading.Event()

    def objection(self, record: DecisionRecord) -> CommandRefusal | None:
        """Refusal of a command that is in cooldown. Called from the command runner's threads."""
        effects = effects_of(record.effects, ssh_host)
        if not record.remedy and not any(is_counted(effect) for effect in effects):
            return None
        question = _Question(record, effects)
        self._questions.put(question)
        self._wakeup.notify()
        while not question.answered.wait(CHANGE_LOOK_SECONDS):
            if self._closed.is_set():
                break
        return question.refusal

    def close(self) -> None:
        """Stop answering: commands that still wait are refused."""
        self._closed.set()

    # The methods below are called by the thread that reads the CLI.

    def answer(self) -> None:
        """Answer all waiting questions in order."""
        while not self._closed.is_set():
            try:
                question = self._questions.get_nowait()
            except Empty:
                break
            question.answer(self._answer_to(question))
        self.write()

    def decided(self, record: DecisionRecord) -> None:
        """Record the effects of a command that needed no count."""
        effects = effects_of(record.effects, ssh_host)
        if record.verdict != Verdict.DENY and not any(map(is_counted, effects)):
            self._unwritten.append(
                lambda: store_changes(self._session, record.call, record.command, effects)
            )

    def ended(self, record: DecisionRecord, end: CommandEnd) -> None:
        if record.effects and record.verdict != Verdict.DENY:
            self._unwritten.append(
                lambda: settle_call(self._session, record.call, end.exit_code, end.has_run)
            )

    def _answer_to(self, question: _Question) -> CommandRefusal | None:
        try:
            if self._was_withdrawn(question.record.remedy):
                return WITHDRAWN
            reached = self._reserve(question)
        except OperationalError:
            logger.warning(
                "Session %s: could not count a change; its command is refused", self._session.pk
            )
            return NOT_COUNTED
        return CommandRefusal(COOLDOWN_RULE, reached.reason) if reached else None

    def _was_withdrawn(self, stamp: str) -> bool:
        """Tell whether a person changed, disabled or removed a remedy since the session began."""
        number, _blank, changed_at = stamp.partition(" ")
        if not number:
            return False
        row = Remedy.objects.filter(pk=number, enabled=True).first()
        return row is None or row.changed_at.isoformat() != changed_at

    def _reserve(self, question: _Question) -> Reached | None:
        """Count and store a change in one transaction under the installation lock."""
        cycle, now = self._session.cycle, timezone.now()
        with installation_lock():
            limits = cooldowns.limits_for(cycle)
            reached = cooldowns.objection(
                question.effects,
                cooldowns.counting(cycle, limits, now),
                limits,
                now,
            )
            if reached is None:
                record = question.record
                store_changes(self._session, record.call, record.command, question.effects)
            else:
                cooldowns.tell_reached(self._session, reached)
                recorder.note_cooldown(self._session, reached.service, reached.reason)
        return reached

    def write(self) -> None:
        """Write what waits; where the database refuses, the next tick tries again."""
        while self._unwritten:
            try:
                self._unwritten[0]()
            except OperationalError:
                return
            self._unwritten.pop(0)


def is_counted(effect: CommandEffect) -> bool:
    return effect.kind != Change.Kind.OTHER


def settle_call(session: Session, call: str, exit_code: int | None, has_run: bool) -> None:
    """Store a command's exit code, or remove its changes if it did not run."""
    rows = Change.objects.filter(session=session, call=call)
    if has_run:
        rows.update(exit_code=exit_code)
    else:
        rows.delete()


def settle_from_events(session: Session) -> None:
    """Rebuild the changes of a session from its stored events, after a crash."""
    events = session.events.filter(
        source=SessionEvent.Source.SUPERVISOR, kind__in=(EventKind.COMMAND, EventKind.COMMAND_END)
    ).order_by("sequence")
    with installation_lock():
        for event in events.only("kind", "payload"):
            data = mapping(event.payload)
            call, code = shape.text_in(data.get("call")), data.get("exit_code")
            if not call or data.get("verdict") == Verdict.DENY:
                continue
            if event.kind == EventKind.COMMAND:
                command = shape.text_in(data.get("command"))
                store_changes(session, call, command, stored_effects(data))
            elif isinstance(code, int):
                settle_call(session, call, code, data.get("has_run") is not False)
        for call in recorded_commands(session).not_begun:
            settle_call(session, call, None, has_run=False)


def only_waited(session: Session, tools: Iterable[str]) -> bool:
    """Tell whether tool calls that were cut off only waited for an approval, by the record.

    Then nothing is half done, because the command had not begun.
    """
    asked = _bash_commands(session, set(tools))
    if asked is None:
        return False
    return waited_only(asked, recorded_commands(session))


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedCommands:
    """Decisions and ends of the commands of a session, by their calls."""

    begun: Mapping[str, Mapping[str, Any]]
    ended: Mapping[str, bool]
    """Whether each ended command has run."""
    taken: Collection[str] = ()
    """Commands whose approval was used, so that they may have begun."""

    @property
    def not_begun(self) -> frozenset[str]:
        """Calls that needed an approval and did not get it."""
        return frozenset(
            call
            for call, data in self.begun.items()
            if data.get("verdict") == Verdict.ASK
            and not self.ended.get(call, False)
            and data.get("command") not in self.taken
        )


def recorded_commands(session: Session) -> RecordedCommands:
    events = session.events.filter(
        source=SessionEvent.Source.SUPERVISOR, kind__in=(EventKind.COMMAND, EventKind.COMMAND_END)
    ).order_by("sequence")
    begun: dict[str, Mapping[str, Any]] = {}
    ended: dict[str, bool] = {}
    for event in events.only("kind", "payload"):
        data = mapping(event.payload)
        call = shape.text_in(data.get("call"))
        if event.kind == EventKind.COMMAND:
            begun[call] = data
        else:
            ended[call] = data.get("has_run") is not False
    taken = Approval.objects.filter(
        session=session, kind=Approval.Kind.COMMAND, used_at__isnull=False
    )
    commands = frozenset(taken.values_list("command", flat=True))
    return RecordedCommands(begun=begun, ended=ended, taken=commands)


def waited_only(texts: Iterable[str], record: RecordedCommands) -> bool:
    """Tell whether each text only waited for an approval. Pure."""
    begun, waiting = record.begun, record.not_begun
    above = {parent for call in waiting for parent in _ancestors(call, begun)}
    is_running = any(
        data.get("verdict") != Verdict.DENY and call not in {*record.ended, *waiting, *above}
        for call, data in begun.items()
    )
    waited = {normalised(shape.text_in(begun[call].get("command"))) for call in waiting | above}
    return not is_running and all(normalised(text) in waited for text in texts)


def _ancestors(call: str, begun: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    parent = shape.text_in(begun[call].get("parent"))
    while parent in begun:
        yield parent
        parent = shape.text_in(begun[parent].get("parent"))


def _bash_commands(session: Session, tools: set[str]) -> list[str] | None:
    """Return the commands of Bash calls, or None if one of the calls is not of Bash."""
    found: dict[str, str] = {}
    events = session.events.filter(source=SessionEvent.Source.STREAM, kind__in=SPOKEN)
    for event in events.only("payload").iterator():
        for call in shape.calls_of(mapping(event.payload)):
            if shape.text_in(call.get("id")) in tools and call.get("name") == BASH:
                command = mapping(call.get("input")).get("command")
                found[shape.text_in(call.get("id"))] = shape.text_in(command)
    return list(found.values()) if tools and found.keys() == tools else None


def stored_effects(data: Mapping[str, Any]) -> tuple[CommandEffect, ...]:
    """Read the effects of a stored decision."""
    listed = data.get("effects")
    rows = map(mapping, listed if isinstance(listed, list) else ())
    return tuple(
        CommandEffect(
            kind=shape.text_in(row.get("kind")),
            service=shape.text_in(row.get("service")),
            action=shape.text_in(row.get("action")),
            host=shape.text_in(row.get("host")),
        )
        for row in rows
        if row.get("kind") in Change.Kind.values
    )


def store_changes(
    session: Session, call: str, command: str, effects: Iterable[CommandEffect]
) -> None:
    """Store the effects of a command once, however often this is called."""
    Change.objects.bulk_create(
        [
            Change(
                session=session,
                watch_id=session.cycle.watch_id,
                call=call,
                number=number,
                kind=effect.kind,
                service=effect.service,
                host=effect.host,
                action=redacted(effect.action),
                command=redacted(command),
            )
            for number, effect in enumerate(effects)
        ],
        ignore_conflicts=True,
    )


class CommandEvents:
    """Records decisions and ends of commands as events; a queue connects the threads."""

    def __init__(self, recorder: Recorder, bypass: BypassCheck, changes: RunChanges) -> None:
        self._recorder = recorder
        self._changes = changes
        self._bypass = bypass
        self._waiting: SimpleQueue[tuple[DecisionRecord, CommandEnd | None]] = SimpleQueue()

    def on_decision(self, record: DecisionRecord) -> None:
        if not record.parent:
            self._bypass.decided(record.command)
        self._waiting.put((record, None))

    def on_end(self, record: DecisionRecord, end: CommandEnd) -> None:
        self._waiting.put((record, end))

    def refused(self, record: DecisionRecord) -> None:
        """Record a command that the CLI itself refused."""
        self._waiting.put((record, None))

    def store(self) -> None:
        """Write the events that have arrived to the database, or to the spool."""
        self.write()
        self._recorder.flush()

    def write(self) -> None:
        """Pass the events that have arrived to the recorder."""
        while True:
            try:
                record, end = self._waiting.get_nowait()
            except Empty:
                return
            if end is None:
                self._write_decision(record)
                self._changes.decided(record)
            else:
                self._write_end(record, end)
                self._changes.ended(record, end)

    def _write_decision(self, record: DecisionRecord) -> None:
        with_grant = f" with {record.grant}" if record.grant else ""
        why = f" ({record.rule})" if record.verdict != Verdict.ALLOW else ""
        done = str(record.verdict.label).capitalize()
        self._recorder.note(
            EventKind.COMMAND,
            f"{done}{with_grant}{why}: {record.command}",
            "warning" if record.verdict == Verdict.DENY else "info",
            command=record.command,
            verdict=record.verdict.value,
            rule=record.rule,
            reason=record.reason,
            grants=[record.grant] if record.grant else [],
            actions=list(record.actions),
            changes=list(record.changes),
            effects=[asdict(effect) for effect in effects_of(record.effects)],
            parent=record.parent,
            allowed_from=record.allowed_from,
            milliseconds=round(record.decision_ms, 2),
            call=record.call,
            cwd=record.cwd,
        )

    def _write_end(self, record: DecisionRecord, end: CommandEnd) -> None:
        if record.verdict == Verdict.DENY:
            return
        status: dict[str, Any] = {"status": end.status} if end.status else {}
        where = {"host": "on the host", "broker": f"(status {end.status})"}
        self._recorder.note(
            EventKind.COMMAND_END,
            f"Ended {where.get(end.location, 'in its sandbox')} with {end.exit_code}: "
            f"{record.command}",
            command=record.command,
            exit_code=end.exit_code,
            call=record.call,
            milliseconds=round(end.run_ms, 1),
            location=end.location,
            has_run=end.has_run,
            **status,
        )


CLI_RULE = "refused by the CLI's own rules"


class CliRefusals:
    """Turns commands that the CLI's own rules refused into decisions on record.

    The command policy did not see them, so it is asked afterwards: the page of the session then
    shows what it wanted to run, and what a higher tier would have allowed.
    """

    def __init__(self, judge: Callable[[ExecRequest], Decision], cwd: str) -> None:
        self._judge = judge
        self._cwd = cwd
        self._seen: set[str] = set()

    def in_line(self, line: Mapping[str, Any]) -> Iterator[DecisionRecord]:
        """Yield the refusals of a result line, each once."""
        if line.get("type") != "result":
            return
        denials = line.get("permission_denials")
        for denial in map(mapping, denials if isinstance(denials, list) else ()):
            command = shape.text_in(mapping(denial.get("tool_input")).get("command"))
            name = shape.text_in(denial.get("tool_use_id"))
            if denial.get("tool_name") == BASH and command and name not in self._seen:
                self._seen.add(name)
                yield self._record(command)

    def _record(self, command: str) -> DecisionRecord:
        refused = DecisionRecord(
            command=command,
            verdict=Verdict.DENY,
            rule=CLI_RULE,
            reason="",
            cwd=self._cwd,
            at=datetime.now(UTC),
        )
        argv = read_one_command(command)
        if argv is None:
            return refused
        decision = self._judge(ExecRequest(argv=argv, cwd=self._cwd))
        return replace(
            refused,
            reason=decision.reason,
            actions=decision.actions,
            changes=decision.changes,
            allowed_from=decision.allowed_from if decision.is_denied else 0,
        )


LOOK_SECONDS = 0.5
State = Approval.State
WAITED_ENOUGH = (
    "This session has waited for approvals for the longest time allowed: this command did not run. "
    "Say in your report what should be run."
)


@dataclass(slots=True)
class PendingCommand:
    question: ApprovalQuestion
    approval: Approval
    until: float
    """On the monotonic clock: the host's may be set back."""


class CommandApprovals:
    """Holds commands until a person approves or rejects them.

    The command runner's threads hand their questions over and wait; the thread that reads the CLI
    touches the record. A question may outlive the call that asked it, because the CLI may give up
    earlier, and ends with the session.
    """

    def __init__(
        self,
        session: Session,
        recorder: Recorder,
        events: CommandEvents,
        plan: Callable[[], str],
    ) -> None:
        self._session = session
        self._recorder = recorder
        self._events = events
        self._plan = plan
        self._new: SimpleQueue[ApprovalQuestion] = SimpleQueue()
        self._held: list[PendingCommand] = []
        self._granted: list[PendingCommand] = []
        """Approved commands that have not begun yet."""
        self._next_look = 0.0
        self._waited = 0.0
        self._since: float | None = None

    def ask(self, question: ApprovalQuestion) -> None:
        """Hand over a question; safe from any thread."""
        self._new.put(question)

    @property
    def waited_seconds(self) -> float:
        """Time that the session has waited for people, up to the longest allowed."""
        now_waiting = time.monotonic() - self._since if self._since is not None else 0.0
        return min(self._waited + now_waiting, float(settings.LONGEST_WAIT_SECONDS))

    def look(self) -> None:
        """Take new questions at once, and look up answers at intervals."""
        self._take_new()
        self._return_unused()
        if self._held and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._look_for_answers()
        self._count()

    def _take_new(self) -> None:
        while True:
            try:
                question = self._new.get_nowait()
            except Empty:
                return
            try:
                self._hold(question)
            except Exception:
                logger.exception("Could not ask for approval of a command")
                question.settle(
                    ApprovalAnswer(
                        approved=False,
                        words="Approval could not be asked for: it did not run. Try again.",
                    )
                )

    def _hold(self, question: ApprovalQuestion) -> None:
        left = settings.LONGEST_WAIT_SECONDS - self.waited_seconds
        if left <= 0:
            question.settle(ApprovalAnswer(approved=False, words=WAITED_ENOUGH))
            return
        # First, so that a recovery knows of every command whose approval was asked for.
        self._events.store()
        record = question.record
        approval = approvals.question_about(
            self._session,
            CommandAsked(
                command=record.command,
                cwd=record.cwd,
                why=record.reason,
                grants=(record.grant,) if record.grant else (),
                actions=record.actions,
                plan=self._plan(),
            ),
        )
        timeout = min(left, settings.CLAUDEOPS_COMMAND_APPROVAL_EXPIRES)
        held = PendingCommand(question, approval, time.monotonic() + timeout)
        if approval.is_waiting:
            self._note(held, "Waits for approval", "warning")
        self._held.append(held)
        self._next_look = 0.0

    def _look_for_answers(self) -> None:
        self._held = [held for held in self._held if not held.question.left]
        numbers = [held.approval.pk for held in self._held]
        try:
            found = Approval.objects.select_related("decided_by").in_bulk(numbers)
            self._held = [
                held for held in self._held if not self._settled(held, found.get(held.approval.pk))
            ]
        except DatabaseError:
            logger.warning("Could not look up answers to approvals; trying again", exc_info=True)

    def _settled(self, held: PendingCommand, approval: Approval | None) -> bool:
        if approval is None:
            held.question.settle(
                ApprovalAnswer(approved=False, words="The approval is gone: it did not run.")
            )
            return True
        held.approval = approval
        if approval.is_waiting and (time.monotonic() >= held.until or approval.is_overdue):
            approvals.close(approval, State.EXPIRED)
            approval.refresh_from_db()
        match approval.state:
            case State.WAITING:
                return False
            case State.APPROVED:
                return self._grant(held)
            case _:
                self._note(held, approval.answer_text, "warning")
                held.question.settle(ApprovalAnswer(approved=False, words=_refused(approval)))
        return True

    def _grant(self, held: PendingCommand) -> bool:
        """Give the approval to one call. A second call of the same command is asked about anew,
        once the first has begun."""
        if any(other.approval.pk == held.approval.pk for other in self._granted):
            return False
        if approvals.take(held.approval):
            self._note(held, held.approval.answer_text)
            self._granted.append(held)
            note = held.approval.note
            words = f"{_who(held.approval)} approved this command: {note}" if note else ""
            held.question.settle(ApprovalAnswer(approved=True, words=words))
        else:
            self._new.put(held.question)
        return True

    def _return_unused(self) -> None:
        """Return approvals whose call was given up at the moment of the answer."""
        for held in self._granted:
            if held.question.left:
                approvals.give_back(held.approval)
        self._granted = [
            held for held in self._granted if not held.question.began and not held.question.left
        ]

    def _count(self) -> None:
        is_waiting = any(not held.question.left for held in self._held)
        if is_waiting and self._since is None:
            self._since = time.monotonic()
        if not is_waiting and self._since is not None:
            self._waited += time.monotonic() - self._since
            self._since = None

    def _note(self, held: PendingCommand, what: str, level: str = "info") -> None:
        approval = held.approval
        command = one_line(approval.command, 200)
        self._recorder.note(
            EventKind.APPROVAL,
            f"{what}: {command}",
            level,
            approval=approval.pk,
            state=approval.state,
        )


def _refused(approval: Approval) -> str:
    match approval.state:
        case State.REJECTED:
            return (
                f"{_who(approval)} rejected this command: {approval.note} It did not run. Find "
                "another way, or leave it to a person and say so in your report."
            )
        case State.EXPIRED:
            return (
                "Nobody approved this command in time: it did not run. Say in your report that it "
                "waits for a person."
            )
    return "The approval was withdrawn: this command did not run."


def _who(approval: Approval) -> str:
    return approval.decided_by.get_username() if approval.decided_by else "A person"


# The injection check: logs, web pages, files, probes and alerts are data. A command that repeats
# text from them word for word may be an instruction of their author, so a person approves it first.
# Only commands with an effect are compared. A model may also rephrase an injected command: against
# that the tier, the command policy and the sandbox must hold.
#
# Exceptions that keep the check usable:
#
# - A program and a verb alone (`git push`, `systemctl daemon-reload`) occur in the hints of many
#   programs. A command is compared if it has an object (`rm /srv/data`) or at least three words.
# - Text that the operator wrote (instructions, request) or accepted (manifest) is trusted wherever
#   it occurs. A manifest that nobody has accepted counts as output.
# - Our own messages come back as output, and so does the command that a result belongs to. Both are
#   removed before the comparison.
# - A part of a longer word is no match: `docker restart web` in `docker restart web-2`.

MIN_WORDS = 3
RULE = "stands in tool output"
_WORD_START = r"(?<![\w/.-])"
_WORD_END = r"(?![\w/-]|\.\w)"


class ToolOutputs:
    """Output of the tools of a conversation, and text of the operator that is trusted.

    White space is normalised once, on arrival, so that a search in megabytes takes milliseconds.
    """

    def __init__(self, *, named: Iterable[str] = ()) -> None:
        self._named = [normalised(text) for text in named if text.strip()]
        self._outputs: list[str] = []

    def add(self, output: str, *, ours: Iterable[str] = ()) -> None:
        """Add an output, without our own messages in it."""
        text = normalised(output)
        for words in ours:
            text = text.replace(normalised(words), " ") if words else text
        if text.strip():
            self._outputs.append(text)

    def repeated_in(self, command: str, effects: Iterable[str]) -> str:
        """Return the part of a command that occurs in an output, or an empty string."""
        parts = dict.fromkeys(normalised(part) for part in (command, *effects))
        suspect = (part for part in parts if _is_specific(part))
        found = (part for part in suspect if _occurs_in(part, tuple(self._outputs)))
        return next((part for part in found if not _occurs_in(part, self._named)), "")


def with_boundary(decision: Decision, command: str, heard: ToolOutputs) -> Decision:
    """Require approval for a command with an effect that repeats an output."""
    if decision.verdict != Verdict.ALLOW or not decision.changes:
        return decision
    part = heard.repeated_in(command, decision.changes)
    if not part:
        return decision
    return decision.asking(
        RULE,
        f"`{part}` occurs word for word in the output of a tool. That is data, so a person has to "
        "approve it.",
    )


def normalised(text: str) -> str:
    """Collapse white space; the CLI also removes some before it runs a command."""
    return " ".join(text.split())


def _is_specific(part: str) -> bool:
    words = part.split()
    return len(words) >= MIN_WORDS or _has_object(words)


def _has_object(words: list[str]) -> bool:
    """Return whether a word after the first is no verb but a path, a number or a name."""
    return any(not re.fullmatch(r"[a-z][a-z-]*", word) for word in words[1:])


def _occurs_in(part: str, texts: Iterable[str]) -> bool:
    bounded: re.Pattern[str] | None = None
    for text in texts:
        if part not in text:
            continue
        bounded = bounded or re.compile(_WORD_START + re.escape(part) + _WORD_END)
        if bounded.search(text):
            return True
    return False


LONGEST_LAG_SECONDS = 30.0
TICKS = 2
"""Ticks of the reader to wait for: the first may have begun before the question."""
LONGEST_WORDS = 3_000


class InjectionCheck:
    """Compares commands with the tool outputs of the conversation so far.

    The thread that reads the CLI observes the stream; the command policy asks from threads of the
    command runner. Such a thread waits until the reader has ticked twice: the CLI prints a result
    before it sends it to the model, so everything that the model has seen is observed by then.
    """

    def __init__(
        self,
        session: Session,
        before: ToolOutputs,
        now: ToolOutputs,
        wakeup: ReaderWakeup | None = None,
    ) -> None:
        self._is_bounded = session.tier > LOWEST_TIER
        self._before = before
        """Outputs of the sessions that this one continues, redacted as stored."""
        self._now = now
        self._said: list[str] = []
        self._ours: list[str] = []
        self._asked: dict[str, str] = {}
        """Commands by the id of their call."""
        self._wakeup = wakeup or ReaderWakeup()
        self._ticks = 0
        self._enough = 0
        """Number of ticks that a thread waits for."""
        self._ticked = threading.Condition()

    def observe(self, line: Mapping[str, Any]) -> None:
        if shape.is_answer(line):
            self._said = [*self._said, *_texts_in(line)][-5:]
        if _add_results(line, self._asked, self._now, tuple(self._ours)):
            self._said = []

    def tick(self) -> None:
        """Note a tick of the reader."""
        with self._ticked:
            self._ticks += 1
            self._ticked.notify_all()
            if self._ticks < self._enough:
                self._wakeup.notify()

    @property
    def last_words(self) -> str:
        """Text of the model since the last result: what it is about to do, and why."""
        return "\n".join(self._said)[-LONGEST_WORDS:]

    def review(self, command: str, decision: Decision) -> Decision:
        """Check a command that would be allowed; safe from any thread."""
        if self._is_bounded and decision.verdict == Verdict.ALLOW and decision.changes:
            self._catch_up()
            decision = with_boundary(decision, command, self._now)
            decision = with_boundary(decision, redacted(command), self._before)
        if decision.reason and decision.reason not in self._ours:
            self._ours.append(decision.reason)
        return decision

    def _catch_up(self) -> None:
        with self._ticked:
            enough = self._enough = self._ticks + TICKS
            self._wakeup.notify()
            if not self._ticked.wait_for(
                lambda: self._ticks >= enough, timeout=LONGEST_LAG_SECONDS
            ):
                raise TimeoutError("the session's output is not being read")


def injection_check_of(lineage: Lineage, wakeup: ReaderWakeup | None = None) -> InjectionCheck:
    """Build the check with the outputs of the sessions that this one continues."""
    session, manifest = lineage.session, manifest_of_cycle(lineage.session.cycle)
    named = tuple(_named_by_people(session.cycle, lineage.path, manifest))
    before = ToolOutputs(named=map(redacted, named))
    before.add(redacted(manifest.unaccepted))
    for fact in session.cycle.facts:
        before.add(fact.output)
        before.add(fact.name)
    if session.tier > LOWEST_TIER:
        for run in lineage.path[:-1]:
            _add_stored_outputs(run, before)
    return InjectionCheck(session, before, ToolOutputs(named=named), wakeup)


def _add_stored_outputs(run: Session, outputs: ToolOutputs) -> None:
    events = run.events.filter(
        source__in=(SessionEvent.Source.STREAM, SessionEvent.Source.SUPERVISOR),
        kind__in=(*SPOKEN, EventKind.COMMAND),
    ).order_by("sequence")
    ours: list[str] = []
    asked: dict[str, str] = {}
    for event in events.iterator():
        data = mapping(event.payload)
        if event.source == SessionEvent.Source.SUPERVISOR:
            ours.append(shape.text_in(data.get("reason")))
            continue
        _add_results(data, asked, outputs, ours)


def _add_results(
    line: Mapping[str, Any], asked: dict[str, str], outputs: ToolOutputs, ours: Iterable[str]
) -> bool:
    """Add the results of a line, each without its own command and our messages."""
    for call in shape.calls_of(line):
        command = mapping(call.get("input")).get("command")
        asked[shape.text_in(call.get("id"))] = shape.text_in(command)
    results = shape.results_of(line)
    for result in results:
        command = asked.pop(shape.text_in(result.get("tool_use_id")), "")
        outputs.add(shape.output_of(result), ours=(*ours, command))
    return bool(results)


def _named_by_people(
    cycle: Cycle, path: Iterable[Session], manifest: CurrentManifest
) -> Iterable[str]:
    """Yield text that an operator wrote or accepted. The text of an unattended trigger is data."""
    yield cycle.instructions
    yield manifest.accepted
    if cycle.trigger in Cycle.ATTENDED_TRIGGERS:
        yield cycle.prompt
    for run in path:
        yield run.request


def _texts_in(line: Mapping[str, Any]) -> list[str]:
    texts = [shape.text_in(block.get("text")) for block in shape.blocks_of(line)]
    calls = [mapping(call.get("input")).get("description") for call in shape.calls_of(line)]
    return [words for words in (*texts, *map(shape.text_in, calls)) if words]
