"""One session from claim to conclusion: the only place that runs a tier.

1. Claim the queued session; whoever comes second leaves.
2. Prepare: CLI, continuation, prompt, directories. What cannot be prepared ends with advice.
3. Store id, command line, host and CLI, and only then start the process.
4. Record the stream while it runs; stop on a time limit or on request.
5. Judge the run, check its report, and let the supervisor decide what follows.

Whatever goes wrong on the way, the session ends in a terminal status.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import OperationalError, transaction

from escalation.agent.process import Ended, Watcher, run_process
from escalation.agent.stream import RunFacts
from escalation.agent.verdict import Verdict, judge
from escalation.continuity import findings_file, handoff, transcripts
from escalation.errors import CannotRun, Postponed, RecordTooThin
from escalation.host.pause import is_paused
from escalation.next_step import supervisor
from escalation.next_step.after_cut_off import AskPerson, CutOff, GoOnAfterCutOff, after_cut_off
from escalation.next_step.cycles import Enqueue
from escalation.next_step.decision import Escalate, RunEnd
from escalation.recovery import recovery
from escalation.rehearsal.drills.drill import drill_surroundings
from escalation.report import checked_report
from escalation.run.admission import admit
from escalation.run.heartbeat import Heartbeat
from escalation.run.preparation import SMALLEST_BUDGET, Preparation, is_question, left_of_budget
from escalation.run.recorder import Listener, Recorder
from escalation.run.run_facts import stored_facts
from sessions_app.models import Conversation, Session

logger = logging.getLogger(__name__)

STOP_CHECK_SECONDS = 0.5
CONCLUDING_PATIENCE_SECONDS = 300.0

StopReason = Callable[[], str]
"""Asked about ten times a second; a non-empty answer stops the run."""


def run(
    session: Session,
    *,
    enqueue: Enqueue,
    listener: Listener | None = None,
    stop_reason: StopReason = lambda: "",
) -> bool:
    """Run a queued session to its end. False: it was not ours to run."""
    if reason := admit(session):
        logger.info("Session %s does not start: %s", session.pk, reason)
        return False
    recorder = Recorder(session, listener)
    try:
        session.cycle.begin()
        try:
            _run_claimed(session, recorder, enqueue, stop_reason)
        except RecordTooThin:
            _ask_for_findings(session, recorder, enqueue)
    except Postponed as postponed:
        _put_back(session, recorder, str(postponed))
        return False
    except CannotRun as error:
        recorder.note("cannot_run", str(error), "error")
        _conclude_failure(session, recorder, str(error), Session.Status.FAILED, enqueue)
    except BaseException as error:
        # Also SystemExit and KeyboardInterrupt: the queue's timeout and a person's Ctrl-C.
        _conclude_crash(session, recorder, error, enqueue)
        raise
    return True


def _put_back(session: Session, recorder: Recorder, reason: str) -> None:
    _close(session, recorder)
    with transaction.atomic():
        Conversation.leave(session)
        session.put_back(reason)


def _run_claimed(
    session: Session, recorder: Recorder, enqueue: Enqueue, stop_reason: StopReason
) -> None:
    with drill_surroundings(session) as surroundings:
        preparation = Preparation(session, recorder, surroundings)
        preparation.store()
        recorder.note("started", preparation.announcement)
        recorder.note("settings", _effective_settings())
        facts, ended, duration_ms = _run_cli(session, preparation, recorder, stop_reason)
    _note_leftovers(preparation, ended, recorder)
    _confirm_session_id(session, facts, recorder)
    tier = preparation.tier
    verdict = judge(
        facts,
        ended,
        tier=tier.number,
        timeout_seconds=tier.timeout_seconds,
        stderr=recorder.stderr,
        resumed=preparation.resumes,
    )
    report, problem = checked_report(facts.structured_output)
    stored = {
        **stored_facts(session, preparation, facts),
        "exit_code": ended.exit_code,
        "duration_ms": duration_ms,
        "report": report,
        "error": verdict.error,
    }
    end = RunEnd(
        tier=tier.number,
        went_well=verdict.went_well,
        error=verdict.error,
        report=report,
        report_problem=problem,
        session_id=session.session_id,
        answered=facts.answered,
        asked_again=session.purpose == Session.Purpose.REPORT,
        asked_for_by_tier=supervisor.tier_that_asked(session),
        is_follow_up=is_question(session),
        resume_refused=verdict.resume_refused,
        tool_ran=facts.tools_started > 0,
        turn_limit=verdict.turn_limit,
        may_go_on=_may_go_on(session, preparation, stored),
        cut_off=_after_cut_off(session, facts) if verdict.cut_off else None,
    )
    if verdict.cut_off:
        _close(session, recorder)
        recorder.skip(recovery.read_transcript(session))
    _keep_traces(session, verdict, recorder, compactions=facts.compactions)
    _conclude(session, recorder, end, verdict.status, stored, enqueue)


def _after_cut_off(session: Session, facts: RunFacts) -> GoOnAfterCutOff | AskPerson:
    return after_cut_off(
        CutOff(
            tier=session.tier,
            tool_was_running=bool(facts.open_tools),
            can_be_continued=bool(session.session_id),
            interruptions=supervisor.interruptions(session),
            is_question=is_question(session),
        ),
        limit=settings.CLAUDEOPS_MAX_INTERRUPTIONS,
    )


def _note_leftovers(preparation: Preparation, ended: Ended, recorder: Recorder) -> None:
    if ended.left_running:
        recorder.note(
            "warning", f"Tools left {ended.left_running} processes running on purpose.", "warning"
        )
    if preparation.traces.tool_log:
        preparation.traces.tool_log.unlink(missing_ok=True)


def _may_go_on(session: Session, preparation: Preparation, stored: dict[str, Any]) -> bool:
    session.cost_usd = stored["cost_usd"]
    session.estimated_cost_usd = stored["estimated_cost_usd"]
    left = left_of_budget(session, preparation.tier)
    return supervisor.continuations_left(session) and left > SMALLEST_BUDGET


def _keep_traces(
    session: Session, verdict: Verdict, recorder: Recorder, *, compactions: int
) -> None:
    """The conversation's copy and state, for whoever continues it on whichever host."""
    if compactions:
        recorder.note(
            "compaction",
            f"The CLI compacted the conversation {compactions} times: earlier tool outputs are "
            "gone from it, and kept here.",
            "warning",
        )
    if verdict.conversation_broken and session.session_id:
        Conversation.retire(session.session_id, verdict.error)
    if session.session_id:
        try:
            transcripts.archive(session)
        except Exception:
            # The run is what counts; without the copy, another host falls back to a handoff.
            logger.exception("Session %s: its transcript could not be archived", session.pk)


def _conclude(
    session: Session,
    recorder: Recorder,
    end: RunEnd,
    status: str,
    facts: dict[str, Any],
    enqueue: Enqueue,
) -> None:
    """Write every event first: who sees the session ended has seen all of it."""
    decision = supervisor.decision_after(session, end)
    findings = _taken_findings(session, recorder)
    recorder.note("decision", decision.reason, "info" if end.went_well else "error")
    _close(session, recorder)
    if findings and isinstance(decision, Escalate):
        session.report, session.status = facts.get("report"), Session.Status.ESCALATED
        handoff.write(handoff.build(session, findings), session)
    persistently(
        lambda: supervisor.conclude(session, decision, status=status, facts=facts, enqueue=enqueue)
    )


def persistently(action: Callable[[], None]) -> None:
    """An ending that the database would not take for a while must not be lost."""
    give_up = time.monotonic() + CONCLUDING_PATIENCE_SECONDS
    while True:
        try:
            return action()
        except OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(1.0)


def _close(session: Session, recorder: Recorder) -> None:
    try:
        recorder.close()
    except Exception:
        # A true ending is worth more than the last words.
        logger.exception("Session %s: events could not be stored", session.pk)


def _taken_findings(session: Session, recorder: Recorder) -> str:
    """What the agent itself wrote down, where it was told to."""
    if not findings_file.wanted_from(session):
        return ""
    findings, problem = findings_file.take(session)
    if problem:
        recorder.note("warning", f"No findings were taken over: {problem}.", "warning")
    return findings


def _ask_for_findings(session: Session, recorder: Recorder, enqueue: Enqueue) -> None:
    """The record cannot carry the next tier: the tier before is invoked again, told to write."""
    parent = session.parent_session
    assert parent is not None, "only a run with a parent needs its record"
    reason = (
        f"The record of Tier {parent.tier} is too thin to hand on: it is asked to write it down."
    )
    recorder.note("decision", reason, "warning")
    _close(session, recorder)
    with transaction.atomic():
        session.finish(Session.Status.CANCELLED, reason, escalation_reason=reason)
        Conversation.leave(session)
        enqueue(supervisor.successor(parent, parent.tier, Session.Purpose.HANDOFF))


def _effective_settings() -> str:
    return (
        f"Resume limits: context up to {settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD:.0%} "
        f"(CLAUDEOPS_RESUME_CONTEXT_THRESHOLD), age up to {settings.CLAUDEOPS_RESUME_MAX_AGE} s."
    )


def _run_cli(
    session: Session, preparation: Preparation, recorder: Recorder, stop_reason: StopReason
) -> tuple[RunFacts, Ended, int]:
    facts = RunFacts()
    stop_request = _StopRequest(session)
    heartbeat = Heartbeat(session)

    def on_stdout(line: bytes) -> None:
        parsed = recorder.stream_line(line)
        if not parsed.is_noise:
            facts.observe(parsed.payload)

    def on_tick() -> str:
        recorder.tick()
        heartbeat.beat()
        return stop_reason() or stop_request.reason()

    def silence_budget() -> float:
        if facts.open_tools:
            return float(settings.CLAUDEOPS_TOOL_SILENCE)
        return float(settings.CLAUDEOPS_SILENCE)

    if is_paused():
        raise Postponed("Claude Ops was paused before this run began")
    began = time.monotonic()
    try:
        ended = run_process(
            preparation.argv,
            environment=preparation.environment,
            cwd=preparation.workdir,
            prompt=preparation.prompt,
            timeout_seconds=preparation.tier.timeout_seconds,
            watcher=Watcher(
                on_stdout=on_stdout,
                on_stderr=recorder.stderr_line,
                has_result=lambda: bool(facts.results),
                on_tick=on_tick,
                on_start=heartbeat.started,
                silence_budget=silence_budget,
            ),
            traces=preparation.traces,
        )
    except OSError as error:
        raise CannotRun(
            f"{preparation.binary.path} cannot be started: {error.strerror or error}. "
            "Check CLAUDEOPS_CLAUDE_BIN."
        ) from error
    return facts, ended, int((time.monotonic() - began) * 1000)


class _StopRequest:
    """Looks now and then whether somebody asked this run to stop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._next_look = time.monotonic() + STOP_CHECK_SECONDS

    def reason(self) -> str:
        if time.monotonic() < self._next_look:
            return ""
        self._next_look = time.monotonic() + STOP_CHECK_SECONDS
        asked = Session.objects.filter(pk=self._session.pk).values_list("stop_requested", flat=True)
        return asked.first() or ""


def _confirm_session_id(session: Session, facts: RunFacts, recorder: Recorder) -> None:
    """REQ-1: only an id that the CLI itself reported can be resumed."""
    if facts.session_id == session.session_id:
        return
    expected, session.session_id = session.session_id, facts.session_id
    session.save(update_fields=["session_id"])
    if facts.session_id:
        recorder.note(
            "warning",
            f"The CLI named the conversation {facts.session_id}, not {expected} as asked.",
            "warning",
        )
        return
    recorder.note(
        "warning",
        f"The CLI reported no session_id (Tier {session.tier}, model {session.model}, asked for "
        f"{expected}, CLI {session.cli_version}): this conversation cannot be resumed.",
        "warning",
    )


def _conclude_failure(
    session: Session, recorder: Recorder, message: str, status: str, enqueue: Enqueue
) -> None:
    end = RunEnd(
        tier=session.tier,
        went_well=False,
        error=message,
        asked_again=session.purpose == Session.Purpose.REPORT,
        asked_for_by_tier=supervisor.tier_that_asked(session),
        is_follow_up=is_question(session),
    )
    _conclude(session, recorder, end, status, {"error": message}, enqueue)


def _conclude_crash(
    session: Session, recorder: Recorder, error: BaseException, enqueue: Enqueue
) -> None:
    session.refresh_from_db()
    if not session.is_open:
        return
    if isinstance(error, Exception):
        logger.exception("Session %s: Claude Ops itself failed", session.pk)
        detail = "".join(traceback.format_exception_only(error)).strip()
        message, status = f"Claude Ops itself failed: {detail}", Session.Status.FAILED
    else:
        message = f"The run was cut off ({type(error).__name__}). Start the cycle again."
        status = Session.Status.INTERRUPTED
    _conclude_failure(session, recorder, message, status, enqueue)
