"""Runs one session from claim to conclusion; no other module runs a tier.

1. Claim the queued session. A second worker that gets the same session leaves it.
2. Prepare CLI, continuation, prompt and directories (`prepare`). What is missing is reported.
3. Store id, command line, host and CLI; only then start the process.
4. Record the stream while it runs; stop it at a limit or on request.
5. Finish: judge the session, check its report, and let the supervisor decide what follows.

Whatever fails on the way, the session ends in a terminal status.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property, partial
from types import FrameType
from typing import Any, cast

from django.apps import apps
from django.conf import settings
from django.db import OperationalError, connection
from django.db.models import Max
from django.utils import timezone

from escalation.agent.binary import answer_first_dialogs
from escalation.agent.event_text import EventLines, end_of_tier, start_of_tier
from escalation.agent.process import (
    Ended,
    Manner,
    ProcessId,
    ReaderWakeup,
    StopAsked,
    StreamInput,
    Terminal,
    Watcher,
    boot_id,
    run_in_terminal,
    run_process,
    started_at,
)
from escalation.agent.stream import StreamFacts
from escalation.errors import CannotRun, Postponed, RecordTooThin, WhyNot
from escalation.queue import (
    SessionLimits,
    installation_lock,
    leave_to_caller,
    not_for_this_host,
    running_tiers,
    wait_for_slot,
)
from escalation.resume import transcripts
from escalation.resume.facts import resume_limits
from escalation.run.command_checks import (
    BypassCheck,
    CliRefusals,
    CommandApprovals,
    CommandEvents,
    InjectionCheck,
    RunChanges,
    injection_check_of,
)
from escalation.run.finish import NOTHING_HEARD, close, ending_without_facts, finish, finish_run
from escalation.run.prepare import RunPlan, prepare
from escalation.run.prompts import told
from escalation.run.recorder import Listener, Recorder, persistently, timeout
from escalation.sandbox.setup import RunSandbox, decider_for, in_sandbox
from escalation.supervisor import budgets
from escalation.supervisor.budgets import waits_for_others
from escalation.supervisor.successors import Lineage, lineage_of
from sessions_app.costs.spending import budgets_of_session
from sessions_app.credentials import API_KEY
from sessions_app.models import (
    Approval,
    Conversation,
    Cycle,
    PauseSwitch,
    RateLimit,
    SandboxProof,
    Session,
    SessionEvent,
)
from sessions_app.models.installation import shared_now
from sessions_app.models.session import EventKind, StreamKind
from sessions_app.redaction.encryption import learn_addresses
from sessions_app.text import as_text
from sessions_app.tiers import LOWEST_TIER

LOOK_SECONDS = 0.5
TERMINAL_IDLE_SECONDS = 3600.0
"""A terminal that nobody uses would keep the watch from its next cycle."""

AskedToStop = Callable[[], StopAsked | None]
"""Called about ten times a second; a value that is not None stops the session."""


def nobody_asks() -> StopAsked | None:
    return None


class StopRequest:
    """Looks up at intervals whether an operator or another process asked the session to stop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._next_look = time.monotonic() + LOOK_SECONDS

    def asked(self) -> StopAsked | None:
        if time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + LOOK_SECONDS
        try:
            rows = Session.objects.filter(pk=self._session.pk)
            cause, words = rows.values_list("stop_cause", "stop_requested").first() or ("", "")
        except OperationalError:
            return None  # the next look tries again
        return StopAsked(cause, words) if cause else None


class ToldMessages:
    """Passes on to the CLI what people tell a running session, from its stored events.

    A CLI that takes no messages while it runs is stopped at the next turn; the prompt of the
    session that continues it has the messages.
    """

    def __init__(self, session: Session, stdin: StreamInput | None) -> None:
        self._session = session
        self._stdin = stdin
        self._next_look = time.monotonic() + LOOK_SECONDS
        self._seen = 0
        """Number of the last event that was looked at."""

    def pass_on(self) -> None:
        """Look at intervals. What is not passed on is found by `undelivered` after the end."""
        if self._stdin is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        with contextlib.suppress(OperationalError):
            for number, payload in self._new():
                if not self._stdin.send(told(as_text(payload["by"]), as_text(payload["text"]))):
                    return
                self._seen = number

    def asks_to_stop(self) -> StopAsked | None:
        """Look at the turns of a CLI that takes no messages; the next session passes them on."""
        if self._stdin is not None or not self._session.can_be_told:
            return None
        with contextlib.suppress(OperationalError):
            if found := self._new():
                people = dict.fromkeys(as_text(payload["by"]) for _number, payload in found)
                words = f"{', '.join(people)} told it something"
                return StopAsked(Session.StopCause.TOLD, words)
        return None

    def undelivered(self) -> int:
        return 0 if self._session.was_told else len(self._new())

    def _new(self) -> list[tuple[int, Any]]:
        later = self._session.events.filter(sequence__gt=self._seen)
        last = later.aggregate(last=Max("sequence"))["last"]
        if last is None:
            return []
        found = later.filter(
            sequence__lte=last, source=SessionEvent.Source.SUPERVISOR, kind=EventKind.TOLD
        )
        rows = list(found.order_by("sequence").values_list("sequence", "payload"))
        if not rows:
            self._seen = last
        return rows


class TranscriptReader:
    """Reads the messages that the CLI adds to its transcript while a person talks to it."""

    def __init__(self, session: Session, receive: Callable[[dict[str, Any]], None]) -> None:
        self._session = session
        self._receive = receive
        self._next_look = 0.0
        self._state: object = ()
        self._seen: set[str] = set()

    def look(self) -> None:
        """Look at intervals. What is written later is read by `finish_run`."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        if (state := transcripts.transcript_state(self._session)) == self._state:
            return
        self._state = state
        for entry in transcripts.own_messages(self._session):
            if (number := str(entry.get("uuid"))) not in self._seen:
                self._seen.add(number)
                self._receive(entry)


@contextmanager
def stop_on_signals(
    cause: str, words: str, numbers: Iterable[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[AskedToStop]:
    """Stop the session on Ctrl-C or SIGTERM, with its record kept."""
    received: list[str] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)

    previous = {number: signal.signal(number, remember) for number in numbers}
    try:
        yield lambda: StopAsked(cause, f"{received[0]}, {words}") if received else None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def run_environment_of(session: Session) -> Iterator[Mapping[str, str]]:
    """Give a drill its environment variables, which the app provides: see `escalation/apps.py`."""
    if not session.is_drill:
        yield {}
        return
    with cast(Any, apps.get_app_config("escalation")).drill_environment(session) as variables:
        yield variables


TAKEN = "it was already taken"
TOO_LATE = (
    "The session had ended before it was told the last message. Ask a follow-up question, or try "
    "another approach from here."
)


def objection(session: Session) -> str:
    """Reason why a queued session must wait, or an empty string."""
    switch = PauseSwitch.current()
    if switch.paused:
        return f"Claude Ops is paused: {switch.reason or 'no reason given'}"
    if why := not_for_this_host(session) or waits_for_rate_limit(session):
        return why
    if session.tier > LOWEST_TIER and SandboxProof.holding():
        return "the last sandbox proof was worse than the one before; an operator has to accept it"
    full = SessionLimits.configured().objection(session.tier, running_tiers(without=session))
    return full or waits_for_others(session)


def waits_for_rate_limit(session: Session) -> str:
    """Drills use no account, so no rate limit holds them."""
    limit = None if session.is_drill else RateLimit.holding()
    return limit.sentence if limit else ""


def admit(session: Session, at: datetime | None = None) -> str:
    """Claim the session if it may start; otherwise return the reason.

    Counting and claiming happen in one transaction under the installation lock, so two workers
    cannot take the same slot or the rest of the same budget.

    `at` identifies the attempt: a retry with the same value, after the answer was lost with the
    connection, finds its own claim.
    """
    with installation_lock():
        if at is not None and session.started_at == at:
            claimed = Session.objects.filter(
                pk=session.pk, status=Session.Status.RUNNING, started_at=at, **this_runner()
            )
            if claimed.exists():
                return ""
        if reason := objection(session):
            wait_for_slot(session)
            return reason
        if not session.claim(at, **this_runner(), waiting_since=None):
            return TAKEN
    return ""


BEAT_SECONDS = 5.0
# Shorter than the silence after which another host recovers the session (`recovery`).
LEASE_SECONDS = 30.0
TAKEN_OVER = "another process has recovered this session"
CUT_OFF = "the database has not answered for so long that another host may recover this session"


def this_runner() -> dict[str, Any]:
    """Fields that identify the process that runs a session."""
    return {
        "host": socket.gethostname(),
        "runner_pid": os.getpid(),
        "runner_started": started_at(os.getpid()),
        "boot_id": boot_id(),
    }


class Heartbeat:
    """Stores at intervals that the session's runner is alive, and what it has spent."""

    def __init__(
        self, session: Session, spent: Callable[[], Decimal | None] = lambda: None
    ) -> None:
        self._session = session
        self._spent = spent
        self._next_beat = time.monotonic() + BEAT_SECONDS
        self._unrecorded: dict[str, int] = {}
        self._last_stored = time.monotonic()
        self._taken_over = False

    def started(self, cli: ProcessId) -> None:
        """Store the CLI's process at once, so that it can be found after a crash.

        Where the database refuses, the next beats try again; until then the processes can be found
        by the mark in their environment.
        """
        self._unrecorded = {"cli_pid": cli.pid, "cli_started": cli.started}
        self._store()

    def beat(self) -> bool:
        """Store a heartbeat if it is time for one; return whether it was."""
        if time.monotonic() < self._next_beat:
            return False
        self._next_beat = time.monotonic() + BEAT_SECONDS
        self._store()
        return True

    @property
    def lost(self) -> StopAsked | None:
        """Reason to stop: another process has recovered the session, or is about to.

        On one host a living runner is seen by its process. Across hosts only the heartbeat counts:
        without one for LEASE_SECONDS another host may continue the work.
        """
        if self._taken_over:
            return StopAsked(Session.StopCause.WORKER, TAKEN_OVER)
        silent = time.monotonic() - self._last_stored
        if connection.vendor == "postgresql" and silent > LEASE_SECONDS:
            return StopAsked(Session.StopCause.WORKER, CUT_OFF)
        return None

    def _store(self) -> None:
        own = this_runner()
        with contextlib.suppress(OperationalError):
            ours = Session.objects.filter(
                pk=self._session.pk,
                runner_pid=own["runner_pid"],
                runner_started=own["runner_started"],
            )
            stored = ours.update(
                heartbeat_at=shared_now(), spent_so_far_usd=self._spent(), **self._unrecorded
            )
            self._taken_over = not stored
            self._last_stored = time.monotonic()
            self._unrecorded = {}


logger = logging.getLogger(__name__)

# Output that the database does not take within this time is spooled to a file.
READING_TIMEOUT_SECONDS = 1


def run(
    session: Session,
    *,
    listener: Listener | None = None,
    asked_to_stop: AskedToStop = nobody_asks,
) -> bool:
    """Run a queued session to its end; return False if it may not start or is not ours."""
    now = timezone.now()
    if reason := persistently(lambda: admit(session, now)):
        logger.info("Session %s does not start: %s", session.pk, reason)
        return False
    return run_claimed(session, listener=listener, asked_to_stop=asked_to_stop)


def run_claimed(
    session: Session,
    *,
    listener: Listener | None = None,
    asked_to_stop: AskedToStop = nobody_asks,
    terminal: Terminal | None = None,
) -> bool:
    """Run a session that this process has claimed; return False if it is postponed."""
    persistently(learn_addresses)
    recorder = Recorder(session, listener)
    tier_run = TierRun(session, recorder, asked_to_stop, terminal)
    try:
        persistently(session.cycle.begin)
        try:
            with run_environment_of(session) as run_environment:
                tier_run.carry_out(run_environment)
            tier_run.finish()
        except (CannotRun, RecordTooThin) as missing:
            tier_run.finish_unstarted(missing)
    except Postponed as postponed:
        reason, began = str(postponed), session.started_at
        if session.is_interactive:
            # A worker has no terminal.
            tier_run.finish_unstarted(CannotRun(reason, WhyNot.WORKER))
            return True
        persistently(lambda: _put_back(session, recorder, reason, began))
        return False
    except BaseException as error:
        # Also SystemExit and KeyboardInterrupt: the queue's timeout and Ctrl-C.
        tier_run.finish_after_crash(error)
        raise
    return True


class TierRun:
    """A claimed session while it is carried out, with the facts that its ending needs."""

    def __init__(
        self,
        session: Session,
        recorder: Recorder,
        asked_to_stop: AskedToStop,
        terminal: Terminal | None = None,
    ) -> None:
        self._session = session
        self._recorder = recorder
        self._asked_to_stop = asked_to_stop
        self._terminal = terminal
        self._facts = StreamFacts()
        self._began: float | None = None
        self._ended: Ended | None = None
        self._api_limits = NOTHING_HEARD
        self._told: ToldMessages | None = None

    @cached_property
    def lineage(self) -> Lineage:
        return lineage_of(self._session)

    def carry_out(self, run_environment: Mapping[str, str]) -> None:
        """Prepare, start the CLI, and read it to its end."""
        try:
            plan = self._prepared(run_environment)
        except OperationalError as away:
            raise Postponed(
                f"the database became unavailable before the session began: {away}"
            ) from away
        commands = RunCommands.of(plan, self.lineage, self._recorder)
        with commands.in_sandbox(plan) as sandbox, contextlib.closing(commands.changes):
            stdin = StreamInput(plan.prompt) if plan.takes_messages else None
            self._told = None if self._terminal else ToldMessages(self._session, stdin)
            cli = CliRun(
                plan=plan,
                stdin=stdin,
                told=self._told,
                sandbox=sandbox,
                commands=commands,
                session=self._session,
                recorder=self._recorder,
                facts=self._facts,
                asked_to_stop=self._asked_to_stop,
                terminal=self._terminal,
            )
            self._began = time.monotonic()
            try:
                ended = cli.run()
            except OSError as error:
                self._began = None
                raise CannotRun(
                    f"{plan.argv[0]} cannot be started: {error.strerror or error}. "
                    "Check CLAUDEOPS_CLAUDE_BIN.",
                    WhyNot.CLI,
                ) from error
        commands.write_rest()
        self._api_limits = sandbox.api_limits
        self._ended = cli.blamed(ended)

    def _prepared(self, run_environment: Mapping[str, str]) -> RunPlan:
        plan = prepare(self.lineage, self._recorder, run_environment)
        self._recorder.note(EventKind.STARTED, plan.announcement)
        self._recorder.note(EventKind.SETTINGS, str(resume_limits()))
        if self._terminal is not None:
            # Nobody waits in a terminal until it may start.
            return plan
        if PauseSwitch.is_on():
            raise Postponed("Claude Ops was paused before the session began")
        if why := waits_for_rate_limit(self._session):
            raise Postponed(why)
        return plan

    def finish(self) -> None:
        assert self._ended is not None, "finish() needs a session whose process has ended"
        self._finish_as(self._ended)
        # Nothing can be said to an ended session, so this finds everything.
        if self._told is not None and persistently(self._told.undelivered):
            self._session.note(EventKind.WARNING, TOO_LATE, "warning")

    def finish_unstarted(self, missing: CannotRun | RecordTooThin) -> None:
        """End a session whose process was not started; it has spent and changed nothing."""
        too_thin = isinstance(missing, RecordTooThin)
        if not too_thin:
            self._recorder.note(EventKind.CANNOT_RUN, str(missing), "error")
        status = Session.Status.CANCELLED if too_thin else Session.Status.FAILED
        self._finish_without_facts(
            str(missing),
            status,
            record_too_thin=too_thin,
            why_not=missing.why_not if isinstance(missing, CannotRun) else "",
        )

    def finish_after_crash(self, error: BaseException) -> None:
        """End a session after an error in Claude Ops itself or the end of this process."""
        persistently(self._session.refresh_from_db)
        if not self._session.is_open:
            return
        is_ours = isinstance(error, Exception)
        if is_ours:
            said = "".join(traceback.format_exception_only(error)).strip()
            why = f"Claude Ops itself failed: {said}"
        else:
            why = f"The session was cut off ({type(error).__name__}). Start the cycle again."
        if is_ours:
            logger.error("Session %s: %s", self._session.pk, why, exc_info=error)
            self._recorder.note(EventKind.CRASH, why, "error")
        if self._began is not None and self._ended is None:
            manner = Manner.CRASHED if is_ours else Manner.ABANDONED
            self._finish_as(Ended(manner=manner, exit_code=None, why=why))
            return
        status = Session.Status.FAILED if is_ours else Session.Status.INTERRUPTED
        why_not = WhyNot.CRASH if is_ours and self._began is None else ""
        self._finish_without_facts(why, status, why_not=why_not)

    def _finish_without_facts(
        self,
        error: str,
        status: str,
        *,
        record_too_thin: bool = False,
        why_not: str = "",
    ) -> None:
        ending = ending_without_facts(
            self.lineage,
            error,
            status,
            answered=self._facts.answered,
            record_too_thin=record_too_thin,
            why_not=why_not,
            was_started=self._began is not None,
        )
        finish(self._session, self._recorder, ending)

    def _finish_as(self, ended: Ended) -> None:
        assert self._began is not None, "a process that was not started has no ending"
        finish_run(
            self.lineage,
            self._recorder,
            self._facts,
            ended,
            duration_ms=int((time.monotonic() - self._began) * 1000),
            api_limits=self._api_limits,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCommands:
    """Checks and records the commands of one session, from the command policy to the events."""

    wakeup: ReaderWakeup
    """Wakes the thread that reads the CLI."""
    injection: InjectionCheck
    approvals: CommandApprovals
    changes: RunChanges
    bypass: BypassCheck
    refusals: CliRefusals
    events: CommandEvents

    @classmethod
    def of(cls, plan: RunPlan, lineage: Lineage, recorder: Recorder) -> RunCommands:
        """Build the checks, with what earlier sessions of the chain have printed."""
        session, wakeup, bypass = lineage.session, ReaderWakeup(), BypassCheck()
        injection = injection_check_of(lineage, wakeup)
        changes = RunChanges(session, wakeup)
        events = CommandEvents(recorder, bypass, changes)
        return cls(
            wakeup=wakeup,
            injection=injection,
            approvals=CommandApprovals(
                session, recorder, events, plan=lambda: injection.last_words
            ),
            changes=changes,
            bypass=bypass,
            refusals=CliRefusals(decider_for(plan.sandbox), str(plan.workdir)),
            events=events,
        )

    @contextmanager
    def in_sandbox(self, plan: RunPlan) -> Iterator[RunSandbox]:
        with ExitStack() as standing:
            try:
                sandbox = standing.enter_context(
                    in_sandbox(
                        plan.sandbox,
                        on_decision=self.events.on_decision,
                        on_end=self.events.on_end,
                        objection=self.changes.objection,
                        ask=self.approvals.ask,
                        review=self.injection.review,
                    )
                )
            except OSError as error:
                raise CannotRun(
                    f"The sandbox of this session cannot be set up: {error}. "
                    "Run `claudeops doctor`.",
                    WhyNot.SANDBOX,
                ) from error
            yield sandbox

    def tick(self) -> None:
        """Answer and record what the threads of the command runner have asked and done."""
        self.changes.answer()
        self.injection.tick()
        self.events.write()
        self.approvals.look()

    def observe(self, line: Mapping[str, Any]) -> str:
        """Check a line of the stream; return a command that ran without a decision, or ''."""
        for refused in self.refusals.in_line(line):
            self.events.refused(refused)
        self.injection.observe(line)
        return self.bypass.look_at(line)

    def write_rest(self) -> None:
        self.events.write()
        self.changes.write()


@dataclass(kw_only=True, slots=True)
class CliRun:
    """The CLI's process while it runs: reads its output, and stops it at its limits."""

    plan: RunPlan
    stdin: StreamInput | None
    """None for a CLI that takes its prompt as plain text."""
    told: ToldMessages | None
    sandbox: RunSandbox
    commands: RunCommands
    session: Session
    recorder: Recorder
    facts: StreamFacts
    asked_to_stop: AskedToStop
    terminal: Terminal | None = None
    """The terminal of a person who talks to the CLI."""

    _fault: StopAsked | None = field(default=None, init=False)
    """Violation by the session itself that stops it."""
    _waited_before_last_line: float = field(default=0.0, init=False)
    _told_stop: StopAsked | None = field(default=None, init=False)
    """Set between two turns, if a message waits that the CLI does not take while it runs."""

    def run(self) -> Ended:
        """Run the process to its end; raises OSError if it cannot be started."""
        with ExitStack() as while_reading:
            return self._run_process(while_reading)

    def blamed(self, ended: Ended) -> Ended:
        """Replace the ending by a fault or a spent budget, however the process ended."""
        ended = replace(ended, exit_code=self.sandbox.exit_code(ended.exit_code))
        fault = self._fault or self._spent()
        return replace(ended, manner=Manner.STOPPED, stop=fault) if fault else ended

    def _spent(self) -> StopAsked | None:
        if not self.sandbox.refused:
            return None
        return StopAsked(Session.StopCause.BUDGET, self.sandbox.refused, by_fault=True)

    def _run_process(self, while_reading: ExitStack) -> Ended:
        plan, sandbox, approvals = self.plan, self.sandbox, self.commands.approvals
        stop_request = StopRequest(self.session)
        heartbeat = Heartbeat(self.session, spent=lambda: plan.budget.spent(sandbox.spending))

        def on_start(cli: ProcessId) -> None:
            heartbeat.started(cli)
            while_reading.enter_context(timeout(READING_TIMEOUT_SECONDS))

        transcript = TranscriptReader(self.session, self._observe_message)

        def on_tick() -> StopAsked | None:
            if self.terminal is not None:
                transcript.look()
            self.commands.tick()
            self.recorder.tick()
            if self.told is not None:
                self.told.pass_on()
            if heartbeat.beat():
                self._renew_budget()
            faults = self._fault or self._spent()
            asked = self.asked_to_stop() or stop_request.asked() or self._left_terminal()
            return faults or heartbeat.lost or asked or self._told_stop

        argv, environment = sandbox.around(plan.argv), {**plan.environment, **sandbox.environment}
        if self.terminal is not None:
            answer_first_dialogs(
                plan.sandbox.config_directory, plan.workdir, environment.get(API_KEY, "")
            )
            return run_in_terminal(
                argv,
                environment=environment,
                cwd=plan.workdir,
                terminal=self.terminal,
                watcher=Watcher(
                    on_stdout=self._observe,
                    on_stderr=self.recorder.stderr_line,
                    has_result=lambda: False,
                    on_tick=on_tick,
                    wakeup=self.commands.wakeup,
                    on_start=on_start,
                    on_stopping=self._note_stop,
                ),
                traces=plan.traces,
            )
        return run_process(
            argv,
            environment=environment,
            cwd=plan.workdir,
            prompt=self.stdin or plan.prompt,
            timeout_seconds=plan.tier.timeout_seconds,
            watcher=Watcher(
                on_stdout=self._observe,
                on_stderr=self.recorder.stderr_line,
                has_result=lambda: bool(self.facts.result),
                on_tick=on_tick,
                wakeup=self.commands.wakeup,
                on_start=on_start,
                on_stopping=self._note_stop,
                silence_budget=self._silence_budget,
                uncounted=lambda: approvals.waited_seconds,
            ),
            traces=plan.traces,
        )

    def _renew_budget(self) -> None:
        """Renew the shared budgets; without an API proxy, stop here when one is spent."""
        budget, cycle = self.plan.budget, self.session.cycle
        with contextlib.suppress(OperationalError):
            shared = budgets_of_session(self.session)
            budget.renew(shared)
            budgets.notify_of_use(shared, cycle.watch)
        if self.sandbox.api_proxy is None and (why := budget.objection(self.sandbox.spending)):
            self._fault = self._fault or StopAsked(Session.StopCause.BUDGET, why, by_fault=True)

    def _observe(self, line: bytes) -> None:
        self.commands.events.write()
        self._waited_before_last_line = self.commands.approvals.waited_seconds
        parsed = self.recorder.stream_line(line)
        if parsed.is_noise:
            return
        self._check(parsed.payload)

    def _observe_message(self, entry: dict[str, Any]) -> None:
        """Record a message of the transcript: in a terminal the CLI prints no stream."""
        self.commands.events.write()
        self.recorder.message_from_transcript(entry)
        self._check(entry)

    def _left_terminal(self) -> StopAsked | None:
        if self.terminal is None:
            return None
        if self.terminal.is_lost:
            return StopAsked(Session.StopCause.FOREGROUND, "the connection was lost")
        if time.monotonic() - self.terminal.last_used > TERMINAL_IDLE_SECONDS:
            return StopAsked(Session.StopCause.FOREGROUND, "the terminal was idle for an hour")
        return None

    def _check(self, payload: dict[str, Any]) -> None:
        self.facts.observe(payload)
        is_turn = payload.get("type") == StreamKind.USER and not self.facts.open_tools
        if is_turn and self.told is not None:
            self._told_stop = self._told_stop or self.told.asks_to_stop()
        if command := self.commands.observe(payload):
            self._fault = self._fault or StopAsked(
                Session.StopCause.UNGUARDED,
                f"A command ran without a decision of the command policy: {command}",
                by_fault=True,
            )

    def _note_stop(self) -> None:
        self.facts.note_stop()
        self.commands.bypass.note_stop()

    def _silence_budget(self) -> float:
        """Seconds of silence allowed: longer during a tool call, and without waits for people."""
        waited = self.commands.approvals.waited_seconds - self._waited_before_last_line
        if self.facts.open_tools:
            return float(settings.CLAUDEOPS_TOOL_IDLE_TIMEOUT) + waited
        return float(settings.CLAUDEOPS_IDLE_TIMEOUT) + waited


def _put_back(session: Session, recorder: Recorder, reason: str, began: datetime | None) -> None:
    """Queue the session again, unless another worker has begun it meanwhile."""
    close(session, recorder)
    with installation_lock():
        if Session.objects.filter(pk=session.pk, started_at=began).exists():
            Conversation.leave(session)
            session.put_back(reason)


def run_to_end(
    cycle: Cycle, print_line: Callable[[str], None], log: EventLines | None = None
) -> Cycle:
    """Run the queued sessions of a cycle in this process until none is left, printing events."""
    log = log or EventLines(indent="   ")
    with (
        leave_to_caller(),
        stop_on_signals(Session.StopCause.FOREGROUND, "in the foreground") as asked_to_stop,
    ):
        while session := next_session(cycle):
            print_line(start_of_tier(session))
            taken = run(
                session,
                listener=partial(_print_event, log, print_line),
                asked_to_stop=asked_to_stop,
            )
            for line in log.left():
                print_line(line)
            if taken:
                session.refresh_from_db(fields=FIELDS_AT_THE_END)
                print_line(end_of_tier(session))
            else:
                why = objection(session) or "another process has taken it"
                print_line(f"   It does not start now: {why}. It stays queued for the worker.")
                break
    for approval in waiting_for(cycle):
        print_line(
            f"   Tier {approval.session.tier} waits for approval: run `claudeops approval approve "
            f"{approval.pk}` or use the page Approvals. The worker then starts it."
        )
    cycle.refresh_from_db()
    return cycle


FIELDS_AT_THE_END = ("status", "cost_usd", "estimated_cost_usd", "duration_ms")


def _print_event(log: EventLines, print_line: Callable[[str], None], event: SessionEvent) -> None:
    for line in log.of(event):
        print_line(line)


def waiting_for(cycle: Cycle) -> list[Approval]:
    waiting = Approval.objects.filter(
        session__cycle=cycle, kind=Approval.Kind.TIER, state=Approval.State.WAITING
    )
    return list(waiting.select_related("session"))


def next_session(cycle: Cycle) -> Session | None:
    return (
        cycle.sessions.filter(status=Session.Status.QUEUED)
        .select_related("cycle__watch", "parent_session")
        .order_by("pk")
        .first()
    )
