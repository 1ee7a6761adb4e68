"""A session that will not be gone on with: too old, or because a person says so."""

from __future__ import annotations

from escalation.errors import OperationRefused, WhyNot
from escalation.next_step.conclude import finish_cycle
from escalation.queue.one_at_a_time import one_at_a_time
from sessions_app.models import Cycle, Session
from sessions_app.models.transitions import IllegalTransition

Status = Session.Status


def expire_queued(session: Session, reason: str) -> None:
    """What it was queued for is past, and its cycle ends with it.

    A worker that takes it at this very moment wins: then `IllegalTransition` says so.
    """
    with one_at_a_time():
        session.finish(Status.EXPIRED, reason, error=reason, escalation_reason="")
        if session.is_question:
            session.cycle.close_again()
        else:
            finish_cycle(session.cycle, Cycle.Outcome.COULD_NOT_RUN, reason, WhyNot.WORKER)


def expire(session: Session, *, by: str) -> None:
    """By a person. Only what waits in the queue, or was cut off, can still be gone on with."""
    reason = f"expired by {by}"
    if session.status == Status.QUEUED:
        try:
            return expire_queued(session, reason)
        except IllegalTransition as moved_on:
            raise OperationRefused(f"{moved_on}.") from moved_on
    if not session.expire(reason):
        raise OperationRefused(
            f"Session {session.pk} is {session.get_status_display()}: only what is queued or "
            "interrupted can expire."
        )
    return None
