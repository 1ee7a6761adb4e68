"""After a run: store what it was, decide, and start what follows, in one transaction.

Either the session has ended and its successor is queued, or neither has happened: no death of a
process between the two can lose an escalation or start it twice.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from escalation.next_step import breaker
from escalation.next_step.cycles import Enqueue
from escalation.next_step.decision import (
    AgainByHandoff,
    AskAgain,
    AskForFindings,
    Continue,
    Decision,
    Escalate,
    Leave,
    Recover,
    RunAgain,
    Stop,
    decide,
)
from escalation.next_step.ending import Ending
from escalation.next_step.ping import ping
from escalation.next_step.run_choice import AS_USUAL, carried_over
from escalation.queue.places import start_waiting
from sessions_app.models import Conversation, Cycle, Session

Purpose = Session.Purpose


def decision_after(session: Session, ending: Ending) -> Decision:
    """The policy is looked up anew only where it decides: before a higher tier."""
    cycle = session.cycle
    return decide(ending, cycle.current_policy() if ending.wants_escalation else cycle.policy)


def conclude(session: Session, ending: Ending, decision: Decision, *, enqueue: Enqueue) -> None:
    """The one way in which a run ends, whatever ended it. Its place is given to whoever waits."""
    status = Session.Status.ESCALATED if isinstance(decision, Escalate) else ending.status
    with transaction.atomic():
        session.finish(status, decision.reason, escalation_reason=decision.reason, **ending.stored)
        Conversation.leave(session)
        if ending.conversation_broken and ending.session_id:
            Conversation.retire(ending.session_id, ending.conversation_broken)
        _follow(session, decision, enqueue)
        start_waiting()


def _follow(session: Session, decision: Decision, enqueue: Enqueue) -> None:
    match decision:
        case Escalate(to_tier=tier):
            enqueue(successor(session, tier, Purpose.TIER))
        case AskAgain():
            enqueue(successor(session, session.tier, Purpose.REPORT))
        case Continue():
            enqueue(successor(session, session.tier, Purpose.CONTINUATION))
        case Recover():
            enqueue(successor(session, session.tier, Purpose.RECOVERY))
        case AgainByHandoff():
            _retire_parent_conversation(session, decision.reason)
            enqueue(sibling(session))
        case RunAgain():
            enqueue(sibling(session))
        case AskForFindings():
            parent = session.parent_session
            assert parent is not None, "only a run with a parent needs its record"
            enqueue(successor(parent, parent.tier, Purpose.FINDINGS))
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
        **{
            "cycle": session.cycle,
            "parent_session": session,
            "tier": tier,
            "purpose": purpose,
            "workdir": session.workdir,
            "continued_by": Session.ContinuedBy.RESUME,
            "continued_why": session.escalation_reason,
            **(carried_over(session) if tier == session.tier else AS_USUAL.fields(tier)),
            **fields,
        }
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
            "force_fresh": session.force_fresh,
            **carried_over(session),
            "workdir": session.workdir,
            **fields,
        }
    )


def _retire_parent_conversation(session: Session, reason: str) -> None:
    if session.parent_session is not None:
        Conversation.retire(session.parent_session.session_id, reason)
