"""After a run: store what it was, decide, and start what follows, in one transaction.

Either the session has ended and its successor is queued, or neither has happened: no death of a
process between the two can lose an escalation or start it twice.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from escalation.cycles import Enqueue
from escalation.decision import AskAgain, Decision, Escalate, Policy, RunEnd, Stop, decide
from escalation.tiers import get_tier
from sessions_app.models import Session


def decision_after(session: Session, end: RunEnd) -> Decision:
    return decide(end, Policy(max_tier=session.cycle.max_tier, dry_run=session.cycle.dry_run))


def conclude(
    session: Session,
    decision: Decision,
    *,
    status: str,
    facts: dict[str, Any],
    enqueue: Enqueue,
) -> None:
    if isinstance(decision, Escalate):
        status = Session.Status.ESCALATED
    with transaction.atomic():
        session.finish(status, escalation_reason=decision.reason, **facts)
        match decision:
            case Escalate(to_tier=tier):
                enqueue(successor(session, tier, Session.Purpose.TIER))
            case AskAgain():
                enqueue(successor(session, session.tier, Session.Purpose.REPORT))
            case Stop(outcome=outcome, reason=reason):
                session.cycle.finish(outcome, reason)


def successor(session: Session, tier: int, purpose: str) -> Session:
    return Session.objects.create(
        cycle=session.cycle,
        parent_session=session,
        tier=tier,
        purpose=purpose,
        model=get_tier(tier).model,
        workdir=session.workdir,
        continued_by=Session.ContinuedBy.RESUME,
        continued_why=session.escalation_reason,
    )


def tier_that_asked(session: Session) -> int | None:
    """The tier whose request for escalation led here, past any request for a report."""
    ancestor = session.parent_session
    while ancestor is not None and ancestor.tier == session.tier:
        ancestor = ancestor.parent_session
    return ancestor.tier if ancestor else None
