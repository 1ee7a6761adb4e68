"""One session from claim to conclusion: the only place that runs a tier.

1. Claim the queued session; whoever comes second leaves.
2. Prepare: CLI, continuation, prompt, directories. What cannot be prepared ends with advice.
3. Store id, command line, host and CLI, and only then start the process.
4. Record the stream while it runs; stop on a time limit or on request.
5. Finish: judge the run, check its report, and let the supervisor decide what follows.

Whatever goes wrong on the way, the session ends in a terminal status.
"""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from django.conf import settings
from django.db import OperationalError, transaction

from escalation.agent import (
    Bell,
    Ended,
    Manner,
    ProcessId,
    StopAsked,
    StreamFacts,
    Watcher,
    run_process,
)
from escalation.continuity.facts import resume_limits
from escalation.errors import CannotRun, Postponed, RecordTooThin, WhyNot
from escalation.next_step.cycles import Enqueue
from escalation.next_step.lineage import Lineage, lineage_of
from escalation.policy import budgets
from escalation.rooms.container_names import names_of
from escalation.rooms.docker_filter import engine_socket
from escalation.run.admission import admit, waits_for_account
from escalation.run.budget import RunBudget
from escalation.run.changes import RunChanges
from escalation.run.ending import ending_without_facts
from escalation.run.finish import NOTHING_HEARD, close, finish, finish_run
from escalation.run.gate_events import GateEvents
from escalation.run.heard import Heard, heard_in
from escalation.run.heartbeat import Heartbeat
from escalation.run.held_commands import HeldCommands
from escalation.run.patience import patience
from escalation.run.persistence import persistently
from escalation.run.plan import Plan
from escalation.run.prepare import prepare
from escalation.run.recorder import Listener, Recorder
from escalation.run.refusals import CliRefusals
from escalation.run.stop import AskedToStop, StopRequest, nobody_asks
from escalation.run.surroundings import surroundings_of
from escalation.run.unguarded import UnguardedCommands
from escalation.run.walls import Walls, behind_walls, judge_of
from sessions_app.models import Conversation, PauseSwitch, Session
from sessions_app.reading.spending import budgets_of_cycle
from sessions_app.reading.target_addresses import learn_addresses

logger = logging.getLogger(__name__)

# While a run is read, its output must not wait long for the database: it is spooled instead.
READING_PATIENCE_SECONDS = 1


def run(
    session: Session,
    *,
    enqueue: Enqueue,
    listener: Listener | None = None,
    asked_to_stop: AskedToStop = nobody_asks,
) -> bool:
    """Run a queued session to its end. False: it was not ours to run."""
    if reason := persistently(lambda: admit(session)):
        logger.info("Session %s does not start: %s", session.pk, reason)
        return False
    persistently(learn_addresses)
    recorder = Recorder(session, listener)
    tier_run = TierRun(session, recorder, asked_to_stop)
    try:
        persistently(session.cycle.begin)
        try:
            with surroundings_of(session) as surroundings:
                tier_run.carry_out(surroundings)
            tier_run.finish(enqueue)
        except (CannotRun, RecordTooThin) as missing:
            tier_run.finish_unstarted(missing, enqueue)
    except Postponed as postponed:
        reason = str(postponed)
        persistently(lambda: _put_back(session, recorder, reason))
        return False
    except BaseException as error:
        # Also SystemExit and KeyboardInterrupt: the queue's timeout and a person's Ctrl-C.
        tier_run.finish_after_crash(error, enqueue)
        raise
    return True


class TierRun:
    """A claimed session on its way to its end, with what is known of it at any moment."""

    def __init__(self, session: Session, recorder: Recorder, asked_to_stop: AskedToStop) -> None:
        self._session = session
        self._recorder = recorder
        self._asked_to_stop = asked_to_stop
        self._facts = StreamFacts()
        self._unguarded = UnguardedCommands()
        self._bell = Bell()
        self._changes = RunChanges(session, self._bell)
        self._gate_events = GateEvents(recorder, self._unguarded, self._changes)
        self._refusals: CliRefusals | None = None
        self._heard: Heard | None = None
        self._held = HeldCommands(session, recorder, plan=self._last_words)
        self._waited_before_last_line = 0.0
        self._fault: StopAsked | None = None
        """What the run itself has done that it must not go on after."""
        self._lineage: Lineage | None = None
        self._ended: Ended | None = None
        self._began: float | None = None
        self._api_limits = NOTHING_HEARD

    @property
    def lineage(self) -> Lineage:
        self._lineage = self._lineage or lineage_of(self._session)
        return self._lineage

    def carry_out(self, surroundings: Mapping[str, str]) -> None:
        """Prepare, start the CLI, and read it to its end."""
        try:
            plan = self._prepared(surroundings)
        except OperationalError as away:
            raise Postponed(f"the database went away before this run began: {away}") from away
        with ExitStack() as standing:
            walls = self._walls(plan, standing)
            standing.callback(self._changes.close)
            self._refusals = CliRefusals(judge_of(plan.walls), str(plan.workdir))
            self._began = time.monotonic()
            try:
                with ExitStack() as while_reading:
                    ended = self._run_process(plan, walls, while_reading)
            except OSError as error:
                self._began = None
                raise CannotRun(
                    f"{plan.argv[0]} cannot be started: {error.strerror or error}. "
                    "Check CLAUDEOPS_CLAUDE_BIN.",
                    WhyNot.CLI,
                ) from error
        self._gate_events.write()
        self._changes.write_rest()
        self._api_limits = walls.api_limits
        self._ended = self._blamed(ended, walls)

    def _prepared(self, surroundings: Mapping[str, str]) -> Plan:
        plan = prepare(self.lineage, self._recorder, surroundings)
        self._recorder.note("started", plan.announcement)
        self._recorder.note("settings", str(resume_limits()))
        if PauseSwitch.is_on():
            raise Postponed("Claude Ops was paused before this run began")
        if why := waits_for_account(self._session):
            raise Postponed(why)
        return plan

    def finish(self, enqueue: Enqueue) -> None:
        assert self._ended is not None, "only a run that has ended is finished"
        self._finish_as(self._ended, enqueue)

    def finish_unstarted(self, missing: CannotRun | RecordTooThin, enqueue: Enqueue) -> None:
        """Something is not there that the run needs; nothing was spent and nothing touched."""
        too_thin = isinstance(missing, RecordTooThin)
        if not too_thin:
            self._recorder.note("cannot_run", str(missing), "error")
        status = Session.Status.CANCELLED if too_thin else Session.Status.FAILED
        self._finish_without_facts(
            str(missing),
            status,
            enqueue,
            record_too_thin=too_thin,
            why_not=missing.why_not if isinstance(missing, CannotRun) else "",
        )

    def finish_after_crash(self, error: BaseException, enqueue: Enqueue) -> None:
        """Something of ours failed, or somebody ended this process."""
        persistently(self._session.refresh_from_db)
        if not self._session.is_open:
            return
        is_ours = isinstance(error, Exception)
        why = _in_words(error)
        if is_ours:
            logger.error("Session %s: %s", self._session.pk, why, exc_info=error)
            self._recorder.note("crash", why, "error")
        if self._began is not None and self._ended is None:
            manner = Manner.CRASHED if is_ours else Manner.ABANDONED
            self._finish_as(Ended(manner=manner, exit_code=None, why=why), enqueue)
            return
        status = Session.Status.FAILED if is_ours else Session.Status.INTERRUPTED
        self._finish_without_facts(why, status, enqueue)

    def _finish_without_facts(
        self,
        error: str,
        status: str,
        enqueue: Enqueue,
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
        )
        finish(self._session, self._recorder, ending, enqueue=enqueue)

    def _finish_as(self, ended: Ended, enqueue: Enqueue) -> None:
        assert self._began is not None, "only a process that was started has an ending"
        finish_run(
            self.lineage,
            self._recorder,
            self._facts,
            ended,
            duration_ms=int((time.monotonic() - self._began) * 1000),
            enqueue=enqueue,
            api_limits=self._api_limits,
        )

    def _walls(self, plan: Plan, standing: ExitStack) -> Walls:
        events = self._gate_events
        engine = engine_socket(plan.walls.surroundings)
        self._heard = heard_in(self.lineage, self._bell)
        try:
            return standing.enter_context(
                behind_walls(
                    plan.walls,
                    on_decision=events.on_decision,
                    on_end=events.on_end,
                    objection=partial(self._changes.objection, names_of=partial(names_of, engine)),
                    ask=self._held.ask,
                    review=self._heard.review,
                )
            )
        except OSError as error:
            raise CannotRun(
                f"The walls around this run cannot be put up: {error}. Look at `claudeops doctor`.",
                WhyNot.WALLS,
            ) from error

    def _blamed(self, ended: Ended, walls: Walls) -> Ended:
        """A run that was refused by its walls has failed by that, however its process ended."""
        ended = replace(ended, exit_code=walls.exit_code(ended.exit_code))
        fault = self._fault or self._spent(walls)
        return replace(ended, manner=Manner.STOPPED, stop=fault) if fault else ended

    def _spent(self, walls: Walls) -> StopAsked | None:
        if not walls.refused:
            return None
        return StopAsked(Session.StopCause.BUDGET, walls.refused, by_fault=True)

    def _run_process(self, plan: Plan, walls: Walls, while_reading: ExitStack) -> Ended:
        stop_request = StopRequest(self._session)
        heartbeat = Heartbeat(self._session, spent=lambda: plan.budget.spent(walls.spending))

        def on_start(cli: ProcessId) -> None:
            heartbeat.started(cli)
            while_reading.enter_context(patience(READING_PATIENCE_SECONDS))

        def on_tick() -> StopAsked | None:
            self._changes.answer()
            if self._heard:
                self._heard.came_round()
            self._gate_events.write()
            self._held.look()
            self._recorder.tick()
            if heartbeat.beat():
                self._renew_budget(plan.budget, walls)
            faults = self._fault or self._spent(walls)
            return faults or heartbeat.lost or self._asked_to_stop() or stop_request.asked()

        return run_process(
            walls.around(plan.argv),
            environment={**plan.environment, **walls.environment},
            cwd=plan.workdir,
            prompt=plan.prompt,
            timeout_seconds=plan.tier.timeout_seconds,
            watcher=Watcher(
                on_stdout=self._observe,
                on_stderr=self._recorder.stderr_line,
                has_result=lambda: bool(self._facts.result),
                on_tick=on_tick,
                bell=self._bell,
                on_start=on_start,
                on_stopping=self._facts.note_stop,
                silence_budget=self._silence_budget,
                uncounted=lambda: self._held.waited_seconds,
            ),
            traces=plan.traces,
        )

    def _renew_budget(self, budget: RunBudget, walls: Walls) -> None:
        """Others spend too. Without a gateway between the requests, the run is stopped here."""
        with contextlib.suppress(OperationalError):
            shared = budgets_of_cycle(self._session.cycle, without=self._session)
            budget.renew(shared)
            budgets.note_standing(shared, self._session.cycle.watch)
        if walls.gateway is None and (why := budget.objection(walls.spending)):
            self._fault = self._fault or StopAsked(Session.StopCause.BUDGET, why, by_fault=True)

    def _observe(self, line: bytes) -> None:
        self._gate_events.write()
        self._waited_before_last_line = self._held.waited_seconds
        parsed = self._recorder.stream_line(line)
        if parsed.is_noise:
            return
        self._facts.observe(parsed.payload)
        for refused in self._refusals.in_line(parsed.payload) if self._refusals else ():
            self._gate_events.refused(refused)
        if self._heard:
            self._heard.observe(parsed.payload)
        if command := self._unguarded.look_at(parsed.payload):
            self._fault = self._fault or StopAsked(
                Session.StopCause.UNGUARDED,
                f"A command ran that the gate had not seen, so the run was stopped: {command}",
                by_fault=True,
            )

    def _silence_budget(self) -> float:
        """A command may be silent for longer than a model that thinks, and a person than both."""
        waited = self._held.waited_seconds - self._waited_before_last_line
        if self._facts.open_tools:
            return float(settings.CLAUDEOPS_TOOL_SILENCE) + waited
        return float(settings.CLAUDEOPS_SILENCE) + waited

    def _last_words(self) -> str:
        return self._heard.last_words if self._heard else ""


def _put_back(session: Session, recorder: Recorder, reason: str) -> None:
    close(session, recorder)
    with transaction.atomic():
        Conversation.leave(session)
        session.put_back(reason)


def _in_words(error: BaseException) -> str:
    if not isinstance(error, Exception):
        return f"The run was cut off ({type(error).__name__}). Start the cycle again."
    return f"Claude Ops itself failed: {''.join(traceback.format_exception_only(error)).strip()}"
