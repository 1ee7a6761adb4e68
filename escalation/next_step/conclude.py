"""After a run: store what it was, decide, and start what follows, in one transaction.

Either the session has ended and its successor is queued, or neither has happened: no death of a
process between the two can lose an escalation or start it twice.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import transaction

from escalation.next_step import breaker
from escalation.next_step.cycles import Enqueue
from escalation.next_step.decision import (
    AgainByHandoff,
    AskAgain,
    Decision,
    Escalate,
    GoOn,
    Leave,
    Policy,
    Recover,
    RunEnd,
    Stop,
    decide,
)
from escalation.next_step.ping import ping
from escalation.tiers import get_tier
from sessions_app.models import Conversation, Cycle, Session

Purpose = Session.Purpose


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
        session.finish(status, decision.reason, escalation_reason=decision.reason, **facts)
        Conversation.leave(session)
        match decision:
            case Escalate(to_tier=tier):
                enqueue(successor(session, tier, Purpose.TIER))
            case AskAgain():
                enqueue(successor(session, session.tier, Purpose.REPORT))
            case GoOn():
                enqueue(successor(session, session.tier, Purpose.CONTINUATION))
            case Recover():
                enqueue(successor(session, session.tier, Purpose.RECOVERY))
            case AgainByHandoff():
                retire_parent_conversation(session, decision.reason)
                enqueue(sibling(session))
            case Leave():
                session.cycle.close_again()
            case Stop(outcome=outcome, reason=reason):
                finish_cycle(session.cycle, outcome, reason)


def finish_cycle(cycle: Cycle, outcome: str, reason: str) -> None:
    if not cycle.finish(outcome, reason):
        return
    breaker.note_outcome(cycle)
    # After the commit: an outside monitor must not hear of what may still be rolled back.
    transaction.on_commit(lambda: ping(cycle))


def successor(session: Session, tier: int, purpose: str, **fields: Any) -> Session:
    """The run that continues a session. How it continues is decided when it starts."""
    return Session.objects.create(
        cycle=session.cycle,
        parent_session=session,
        tier=tier,
        purpose=purpose,
        model=get_tier(tier).model,
        workdir=session.workdir,
        continued_by=Session.ContinuedBy.RESUME,
        continued_why=session.escalation_reason,
        **fields,
    )


def sibling(session: Session, **fields: Any) -> Session:
    """The same run once more, from the same point."""
    return Session.objects.create(
        **{
            "cycle": session.cycle,
            "parent_session": session.parent_session,
            "tier": session.tier,
            "purpose": session.purpose,
            "request": session.request,
            "requested_by": session.requested_by,
            "model": get_tier(session.tier).model,
            "workdir": session.workdir,
            **fields,
        }
    )


def retire_parent_conversation(session: Session, reason: str) -> None:
    if session.parent_session is not None:
        Conversation.retire(session.parent_session.session_id, reason)


def tier_that_asked(session: Session) -> int | None:
    """The tier whose request for escalation led here, past other runs of this tier."""
    ancestor = session.parent_session
    while ancestor is not None and ancestor.tier == session.tier:
        ancestor = ancestor.parent_session
    return ancestor.tier if ancestor else None


def runs_of_this_tier(session: Session) -> list[Session]:
    """The session and the runs that it continues within its tier, newest first."""
    runs = [session]
    while (parent := runs[-1].parent_session) is not None and parent.tier == session.tier:
        runs.append(parent)
    return runs


def interruptions(session: Session) -> int:
    """How often this tier has been cut off in a row, the session included."""
    cut = (Session.Status.INTERRUPTED, Session.Status.RUNNING)
    return len([run for run in runs_of_this_tier(session) if run.status in cut])


def continuations_left(session: Session) -> bool:
    done = [run for run in runs_of_this_tier(session) if run.purpose == Purpose.CONTINUATION]
    return len(done) < settings.CLAUDEOPS_MAX_CONTINUATIONS
