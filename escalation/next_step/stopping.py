"""A person stops a chain: what runs is cut off, what waits is cancelled, and nothing follows.

Whatever happens at the same moment, one of three holds. The run sees the request and ends as
stopped; or it has ended by itself, and its conclusion finds the request and starts nothing; or its
successor is there already, and is cancelled here.
"""

from __future__ import annotations

from enum import StrEnum

from escalation.approvals import answering
from escalation.next_step.conclude import finish_cycle
from escalation.next_step.dry_fork import give_up
from escalation.queue.one_at_a_time import one_at_a_time
from escalation.queue.places import start_waiting
from sessions_app.models import Approval, Cycle, Session
from sessions_app.models.transitions import IllegalTransition
from sessions_app.reading.masking import masked

Status = Session.Status
WAITING = (Status.QUEUED, Status.AWAITING_APPROVAL)


class Stopped(StrEnum):
    STOPPING = "stopping"
    """Something runs, and was asked to stop."""
    CANCELLED = "cancelled"
    """Nothing ran yet."""
    NOTHING = "nothing"
    """There was nothing left to stop."""


def stop_cycle(cycle: Cycle, *, by: str) -> Stopped:
    by = masked(by)[:200]
    with one_at_a_time():
        runs = Session.objects.filter(cycle=cycle)
        runs.ask_to_stop(Session.StopCause.PERSON, by)
        cancelled = [run for run in _waiting_in(cycle) if _cancelled(run, by)]
        if _still_works(cycle):
            return Stopped.STOPPING
        if not cancelled:
            return _closed_empty(cycle, by)
        _end(cycle, cancelled, by)
        start_waiting()
    return Stopped.CANCELLED


def _waiting_in(cycle: Cycle) -> list[Session]:
    found = Session.objects.filter(cycle=cycle, status__in=WAITING)
    return list(found.select_related("cycle__watch").order_by("pk"))


def _cancelled(session: Session, by: str) -> bool:
    """False: somebody has just taken it."""
    facts = {"stop_cause": Session.StopCause.PERSON, "stop_requested": by}
    try:
        session.finish(Status.CANCELLED, f"stopped by {by}", **facts)
    except IllegalTransition:
        Session.objects.filter(pk=session.pk).ask_to_stop(Session.StopCause.PERSON, by)
        return False
    for approval in session.approvals.filter(state=Approval.State.WAITING):
        answering.close(approval, Approval.State.WITHDRAWN)
        give_up(approval)
    return True


def _still_works(cycle: Cycle) -> bool:
    """A run whose conclusion will end the cycle. That of a plan would not."""
    running = Session.objects.filter(cycle=cycle, status=Status.RUNNING)
    return running.exclude(purpose=Session.Purpose.PLAN).exists()


def _end(cycle: Cycle, cancelled: list[Session], by: str) -> None:
    """A question that was cancelled leaves the outcome as it was."""
    if all(session.is_question for session in cancelled):
        cycle.close_again()
        return
    tiers = {session.tier for session in cancelled if not session.is_plan}
    named = f"Tier {max(tiers)}" if tiers else "the next run"
    reason = f"Stopped by {by} before {named} began."
    finish_cycle(cycle, Cycle.Outcome.NEEDS_PERSON, reason, stopped_by=by)


def _closed_empty(cycle: Cycle, by: str) -> Stopped:
    """A cycle that waits without a run can only be ended; one that has ended, not at all."""
    if not cycle.is_active or cycle.sessions.exists():
        return Stopped.NOTHING
    reason = f"Stopped by {by} before anything began."
    finish_cycle(cycle, Cycle.Outcome.NEEDS_PERSON, reason, stopped_by=by)
    return Stopped.CANCELLED
