"""Out of the facts of the stream and how the process ended: the ending of the run. Pure.

The live runner, a crash of ours and a recovery after a death all come here, so that a run has the
same facts whoever saw its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from escalation.agent import (
    AccountLimit,
    Ended,
    Judgement,
    Manner,
    StreamFacts,
    Tokens,
    Verdict,
    Window,
    judge,
)
from escalation.next_step.after_cut_off import (
    AfterCutOff,
    CutOff,
    LimitMet,
    after_cut_off,
    after_limit,
)
from escalation.next_step.ending import Ending, Note
from escalation.next_step.lineage import Lineage
from escalation.report import checked_report
from escalation.run.cost import OwnCost
from escalation.run.plan import SMALLEST_BUDGET
from escalation.tiers import Tier
from sessions_app.models import Session
from sessions_app.models.account_clock import moment_text
from sessions_app.reading.masking import masked, masked_data

StopCause, Status = Session.StopCause, Session.Status

STATUS_OF = {
    Judgement.WENT_WELL: Status.COMPLETED,
    Judgement.FAILED: Status.FAILED,
    Judgement.TIMED_OUT: Status.TIMED_OUT,
    Judgement.STOPPED: Status.INTERRUPTED,
    Judgement.KILLED: Status.INTERRUPTED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    continuations: int
    interruptions: int
    limit_waits: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What was seen of a run besides its stream."""

    stderr: str = ""
    first_line_at: datetime | None = None
    last_line_at: datetime | None = None
    duration_ms: int | None = None
    context_tokens: int = 0
    """By the transcript, which knows how long the last answer became; the stream does not."""
    findings: str = ""
    findings_problem: str = ""
    account_limit: AccountLimit | None = None
    windows: tuple[Window, ...] = ()


def ending_of(
    lineage: Lineage,
    tier: Tier,
    facts: StreamFacts,
    ended: Ended,
    seen: Seen,
    cost: OwnCost,
    tokens: Tokens,
    limits: Limits,
) -> Ending:
    """The ending of a run whose process was started."""
    session = lineage.session
    verdict = judge(
        facts,
        ended,
        tier=tier.number,
        timeout_seconds=tier.timeout_seconds,
        stderr=seen.stderr,
        resumed=session.resumed,
    )
    limit = seen.account_limit if _failed_by_itself(verdict, ended) else None
    if limit is not None:
        verdict = _cut_by_limit(limit)
    report, problem = checked_report(facts.structured_output)
    if problem:
        # The words quote what was said, cut: said again of what is masked, if that is as wrong.
        problem = checked_report(masked_data(facts.structured_output))[1] or masked(problem)
    return Ending(
        tier=session.tier,
        status=STATUS_OF[verdict.judgement],
        error=verdict.error,
        report=report,
        report_problem=problem,
        session_id=facts.session_id,
        answered=facts.answered,
        asked_again=session.purpose == Session.Purpose.REPORT,
        asked_for_by_tier=lineage.tier_that_asked,
        is_question=session.is_question,
        is_plan=session.is_plan,
        resume_refused=verdict.resume_refused,
        turn_limit=verdict.turn_limit,
        may_continue=_may_continue(lineage, tier, cost, limits),
        stopped_by=_stopped_by(verdict, ended),
        after_cut_off=_after_limit(lineage, facts, limit, limits)
        or _after_cut_off(lineage, facts, ended, verdict, limits),
        account_limit=limit,
        windows=seen.windows,
        conversation_broken=_broken(verdict, facts),
        stored={
            **_spent(cost, tokens),
            **_told(facts),
            "context_tokens": max(facts.context_tokens, seen.context_tokens),
            "session_id": facts.session_id,
            "exit_code": ended.exit_code,
            "stop_cause": StopCause.ACCOUNT_LIMIT if limit else _stop_cause(verdict, ended),
            "duration_ms": seen.duration_ms,
            "first_activity_at": seen.first_line_at,
            "last_activity_at": seen.last_line_at or session.started_at,
            "report": report,
            "findings": seen.findings,
            "error": verdict.error,
        },
        notes=tuple(_notes(session, facts, ended, seen)),
    )


def ending_without_facts(
    lineage: Lineage,
    error: str,
    status: str,
    *,
    answered: bool = False,
    record_too_thin: bool = False,
    why_not: str = "",
) -> Ending:
    """The ending of a session whose process never began, or whose facts cannot be made out."""
    session = lineage.session
    return Ending(
        tier=session.tier,
        status=status,
        error=error,
        answered=answered,
        asked_again=session.purpose == Session.Purpose.REPORT,
        asked_for_by_tier=lineage.tier_that_asked,
        is_question=session.is_question,
        is_plan=session.is_plan,
        record_too_thin=record_too_thin,
        why_not=why_not,
        stored={} if record_too_thin else {"error": error},
    )


def _spent(cost: OwnCost, tokens: Tokens) -> dict[str, Any]:
    return {
        "cost_usd": cost.cost_usd,
        "reported_cost_usd": cost.reported_cost_usd,
        "baseline_cost_usd": cost.baseline_cost_usd,
        "estimated_cost_usd": cost.estimated_cost_usd,
        "cost_basis": cost.basis,
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_tokens": tokens.cache_read,
        "cache_creation_tokens": tokens.cache_creation,
    }


def _told(facts: StreamFacts) -> dict[str, Any]:
    """What the stream itself says."""
    return {
        "model_used": facts.model[:100],
        "context_window": facts.context_window,
        "compactions": facts.compactions,
        "turns": facts.turns,
        "messages": facts.messages,
        "stop_reason": str(facts.result.get("stop_reason") or "")[:100],
        "terminal_reason": str(facts.result.get("terminal_reason") or "")[:100],
        "result": facts.result_text,
    }


def _broken(verdict: Verdict, facts: StreamFacts) -> str:
    if facts.writes_lost:
        return "the CLI has not written all of it down (killed, or a full disk), so it has a hole"
    return verdict.error if verdict.conversation_broken else ""


def _may_continue(lineage: Lineage, tier: Tier, cost: OwnCost, limits: Limits) -> bool:
    spent = cost.cost_usd or cost.estimated_cost_usd or Decimal(0)
    left = tier.max_budget_usd - lineage.spent_before_usd - spent
    return lineage.continuations < limits.continuations and left > SMALLEST_BUDGET


def _after_cut_off(
    lineage: Lineage, facts: StreamFacts, ended: Ended, verdict: Verdict, limits: Limits
) -> AfterCutOff | None:
    # A worker that is told to stop wants its runs to continue under the next one.
    stopped_for_us = ended.stop is not None and ended.stop.cause == StopCause.WORKER
    was_stopped = verdict.judgement == Judgement.STOPPED and stopped_for_us
    if not was_stopped and verdict.judgement != Judgement.KILLED:
        return None
    session = lineage.session
    return after_cut_off(
        CutOff(
            tier=session.tier,
            tool_was_running=bool(facts.open_tools | facts.cut_tools),
            can_be_continued=bool(facts.session_id),
            answered=facts.answered,
            interruptions=lineage.interruptions,
            started_again=lineage.started_again,
            is_question=session.is_question,
        ),
        limit=limits.interruptions,
    )


def _failed_by_itself(verdict: Verdict, ended: Ended) -> bool:
    """A fault of the run or of ours is told before what the account has to do with it."""
    by_itself = ended.manner in (Manner.EXITED, Manner.RUNNER_GONE) and ended.stop is None
    return by_itself and verdict.judgement == Judgement.FAILED


def _cut_by_limit(limit: AccountLimit) -> Verdict:
    """Neither the run nor its conversation is to blame."""
    return Verdict(
        judgement=Judgement.STOPPED,
        error=f"The account's limit was reached. The API said: {limit.words.rstrip('.')}.",
    )


def _after_limit(
    lineage: Lineage, facts: StreamFacts, limit: AccountLimit | None, limits: Limits
) -> AfterCutOff | None:
    if limit is None:
        return None
    session = lineage.session
    return after_limit(
        LimitMet(
            tier=session.tier,
            until=moment_text(limit.until),
            can_be_continued=bool(facts.session_id),
            answered=facts.answered,
            times=lineage.limits_met,
            is_question=session.is_question,
        ),
        most=limits.limit_waits,
    )


def _stop_cause(verdict: Verdict, ended: Ended) -> str:
    if verdict.judgement == Judgement.TIMED_OUT:
        return StopCause.SILENCE if ended.silent_seconds else StopCause.TIME_LIMIT
    if verdict.budget_spent and ended.stop is None:
        return StopCause.BUDGET
    return ended.stop.cause if ended.stop else ""


def _stopped_by(verdict: Verdict, ended: Ended) -> str:
    stop = ended.stop
    by_person = stop is not None and stop.cause == StopCause.PERSON
    return stop.words if stop and by_person and verdict.judgement == Judgement.STOPPED else ""


def _notes(session: Session, facts: StreamFacts, ended: Ended, seen: Seen) -> list[Note]:
    notes = []
    if ended.left_running:
        left = f"Tools left {ended.left_running} processes running on purpose."
        notes.append(Note("warning", left, "warning"))
    if named := _id_warning(session, facts):
        notes.append(Note("warning", named, "warning"))
    if facts.writes_lost:
        torn = "The CLI has not written all of its transcript down: the next run gets a handoff."
        notes.append(Note("warning", torn, "warning"))
    if facts.compactions:
        compacted = (
            f"The CLI compacted the conversation {facts.compactions} times: earlier tool outputs "
            "are gone from it, and kept here."
        )
        notes.append(Note("compaction", compacted, "warning"))
    if seen.findings_problem:
        untaken = f"No findings were taken over: {seen.findings_problem}."
        notes.append(Note("warning", untaken, "warning"))
    return notes


def _id_warning(session: Session, facts: StreamFacts) -> str:
    """REQ-1: only an id that the CLI itself reported can be resumed."""
    if facts.session_id == session.session_id:
        return ""
    if facts.session_id:
        return (
            f"The CLI named the conversation {facts.session_id}, not {session.session_id} as asked."
        )
    return (
        f"The CLI reported no session_id (Tier {session.tier}, model {session.model}, asked for "
        f"{session.session_id}, CLI {session.cli_version}): this conversation cannot be resumed."
    )
