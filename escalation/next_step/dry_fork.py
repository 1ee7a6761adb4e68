"""A dry fork: the tier that waits is asked for its plan, in a run that can change nothing.

It forks the conversation that the tier would continue, so the tier itself begins where it would
have begun. What it costs is in its own row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from escalation.approvals.asking import LONGEST_PLAN, plan_in, tell_people
from escalation.errors import OperationRefused
from escalation.next_step.successors import successor
from escalation.tiers import get_tier
from sessions_app.models import Approval, Session
from sessions_app.models.transitions import IllegalTransition

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.auth.models import User

WANTED = "Say what Tier {tier} ({name}) would do here, and why."
ANSWERED = "the approval was answered without its plan"


def can_be_planned(session: Session) -> bool:
    """There is a conversation to fork."""
    return session.parent_session_id is not None


def ask_for_plan(
    approval: Approval, *, enqueue: Callable[[Session], None], by: User | None = None
) -> Session:
    """In the caller's transaction. Raises OperationRefused."""
    waiting = approval.session
    if approval.kind != Approval.Kind.TIER or not can_be_planned(waiting):
        raise OperationRefused("There is no conversation before this that could be forked.")
    assert waiting.parent_session is not None, "asked above"
    planning = successor(
        waiting.parent_session,
        waiting.tier,
        Session.Purpose.PLAN,
        request=WANTED.format(tier=waiting.tier, name=get_tier(waiting.tier).name),
        requested_by=by,
        force_fresh=waiting.force_fresh,
    )
    taken = Approval.objects.filter(
        pk=approval.pk, state=Approval.State.WAITING, plan_run=None
    ).update(plan_run=planning)
    if not taken:
        raise OperationRefused(
            f"Approval {approval.pk} has been answered, or its plan was asked for already."
        )
    enqueue(planning)
    return planning


def planned(session: Session) -> None:
    """The fork has ended, well or not: what it said is shown, and people are told if none were."""
    said = f"The plan of Tier {session.tier}, by a dry fork:\n{plan_in(session)}"
    if session.status != Session.Status.COMPLETED:
        said = f"The dry fork gave no plan: {session.error}"
    for approval in Approval.objects.filter(plan_run=session, state=Approval.State.WAITING):
        approval.plan = f"{said}\n\n{approval.plan}"[:LONGEST_PLAN]
        approval.save(update_fields=["plan"])
        tell_people(approval)


def give_up(approval: Approval) -> None:
    """It was answered without waiting for the plan."""
    planning = approval.plan_run
    if planning is None or not planning.is_open:
        return
    if planning.status == Session.Status.QUEUED:
        try:
            planning.finish(Session.Status.CANCELLED, ANSWERED)
            return
        except IllegalTransition:
            planning.refresh_from_db()
    Session.objects.filter(pk=planning.pk).ask_to_stop(Session.StopCause.PERSON, ANSWERED)
