"""After a run: store what it was, decide, and start what follows, in one transaction.

Either the session has ended and its successor is queued, or neither has happened: no death of a
process between the two can lose an escalation or start it twice.

The decision was made from what was really said; what is stored of it is masked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from django.db import transaction

from escalation.approvals.answering import withdraw
from escalation.approvals.asking import carried_over
from escalation.incidents import book
from escalation.next_step import account_clock, breaker
from escalation.next_step.cycles import Enqueue
from escalation.next_step.decision import (
    AgainByHandoff,
    AskAgain,
    AskForFindings,
    Continue,
    Decision,
    Escalate,
    Leave,
    Planned,
    Recover,
    RunAgain,
    Stop,
    decide,
)
from escalation.next_step.dry_fork import planned
from escalation.next_step.ending import Ending
from escalation.next_step.ping import ping
from escalation.next_step.starting import begin
from escalation.next_step.successors import sibling, successor
from escalation.policy.budgets import note_standing
from escalation.policy.change_record import clear_recovered
from escalation.policy.holding import held_back, tell_held
from escalation.queue.one_at_a_time import one_at_a_time
from escalation.queue.places import start_waiting
from sessions_app.models import Conversation, Cycle, Session
from sessions_app.reading.budgets import Spent
from sessions_app.reading.chain_record import claims_in
from sessions_app.reading.masking import masked, masked_data
from sessions_app.reading.spending import budgets_of_cycle

Purpose = Session.Purpose
SAID = ("result", "report", "findings", "error")
"""The fields of a session that hold what a model, a tool or an exception said."""

GOES_ON_AS = {
    AskAgain: Purpose.REPORT,
    Continue: Purpose.CONTINUATION,
    Recover: Purpose.RECOVERY,
}


def decision_after(session: Session, ending: Ending) -> Decision:
    """The policy is looked up anew only where it decides: before a higher tier. The record is
    asked only where something is claimed."""
    cycle = session.cycle
    if ending.report is None or not ending.wants_escalation:
        return decide(ending, cycle.policy, claims=claims_in(ending.report, cycle.pk))
    policy = cycle.current_policy()
    return decide(ending, policy, held_back(session, ending.report, policy, _cost_of(ending)))


def _cost_of(ending: Ending) -> Spent:
    known, guessed = (ending.stored.get(name) for name in ("cost_usd", "estimated_cost_usd"))
    if known is not None:
        return Spent(total=known)
    return Spent(total=guessed or Decimal(0), guessed=guessed or Decimal(0))


def conclude(session: Session, ending: Ending, decision: Decision, *, enqueue: Enqueue) -> None:
    """The one way in which a run ends, whatever ended it. Its place is given to whoever waits."""
    decision = replace(decision, reason=masked(decision.reason))
    stored = _masked_fields(ending.stored)
    with one_at_a_time():
        decision = _unless_stopped(session, decision)
        status = Session.Status.ESCALATED if isinstance(decision, Escalate) else ending.status
        session.finish(status, decision.reason, escalation_reason=decision.reason, **stored)
        Conversation.leave(session)
        if not session.is_drill:
            account_clock.note_ending(ending)
        if ending.conversation_broken and ending.session_id:
            Conversation.retire(ending.session_id, masked(ending.conversation_broken))
        withdraw(session)
        _follow(session, decision, enqueue, ending)
        note_standing(budgets_of_cycle(session.cycle), session.cycle.watch)
        start_waiting()


def _unless_stopped(session: Session, decision: Decision) -> Decision:
    """A person stopped the chain in the moment in which this run ended by itself."""
    if isinstance(decision, Stop | Leave | Planned):
        return decision
    row = Session.objects.select_for_update(of=("self",)).filter(pk=session.pk)
    by = row.filter(stop_cause=Session.StopCause.PERSON).values_list("stop_requested", flat=True)
    if not (name := by.first()):
        return decision
    reason = f"Stopped by {name} after Tier {session.tier}. {decision.reason}"
    return Stop(Cycle.Outcome.NEEDS_PERSON, reason, stopped_by=name)


def _masked_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        field: masked_data(value) if field in SAID else value for field, value in stored.items()
    }


def _follow(session: Session, decision: Decision, enqueue: Enqueue, ending: Ending) -> None:
    match decision:
        case Escalate(to_tier=tier, reason=reason):
            book.note_escalation(session, tier)
            begin(successor(session, tier, Purpose.TIER), enqueue=enqueue, why=reason)
        case AskAgain() | Continue() | Recover():
            enqueue(successor(session, session.tier, GOES_ON_AS[type(decision)]))
        case AgainByHandoff():
            _retire_parent_conversation(session, decision.reason)
            enqueue(_once_more(session))
        case RunAgain():
            enqueue(_once_more(session))
        case AskForFindings():
            parent = session.parent_session
            assert parent is not None, "only a run with a parent needs its record"
            enqueue(successor(parent, parent.tier, Purpose.FINDINGS))
        case Planned():
            planned(session)
        case Leave():
            session.cycle.close_again()
        case Stop(outcome=outcome, reason=reason, held=held, stopped_by=by):
            finish_cycle(session.cycle, outcome, reason, ending.why_not, stopped_by=by)
            tell_held(session, held)


def finish_cycle(
    cycle: Cycle, outcome: str, reason: str, why_not: str = "", *, stopped_by: str = ""
) -> None:
    if not cycle.finish(outcome, reason, stopped_by=stopped_by):
        return
    breaker.note_outcome(cycle)
    book.note_outcome(cycle, why_not)
    clear_recovered(cycle)
    # After the commit: an outside monitor must not hear of what may still be rolled back.
    transaction.on_commit(lambda: ping(cycle))


def _once_more(session: Session) -> Session:
    again = sibling(session)
    carried_over(session, again)
    return again


def _retire_parent_conversation(session: Session, reason: str) -> None:
    if session.parent_session is not None:
        Conversation.retire(session.parent_session.session_id, reason)
