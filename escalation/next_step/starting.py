"""The one way in which a new session begins its wait: in the queue, or for a person's word first.

Both in the caller's transaction: there is never a session that waits for an approval which nobody
was asked for, nor one in the queue that still needs one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.utils import timezone

from escalation.approvals.asking import approved_by_starting, ask_for_tier, plan_in
from escalation.next_step.dry_fork import ask_for_plan, can_be_planned
from sessions_app.access.roles import Right, may
from sessions_app.models import Approval, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.contrib.auth.models import User

GOES_ON = (
    Session.Purpose.REPORT,
    Session.Purpose.CONTINUATION,
    Session.Purpose.RECOVERY,
    Session.Purpose.FINDINGS,
)
"""These go on with what was approved when their tier began."""
CHANGES_NOTHING = (Session.Purpose.FOLLOW_UP, Session.Purpose.PLAN)


def begin(
    session: Session,
    *,
    enqueue: Callable[[Session], None],
    why: str = "",
    by: User | None = None,
    confirmed: bool = False,
) -> None:
    """Hand a new session to the queue; where its tier needs approval, ask for that instead.

    `by` and `confirmed`: who starts it by hand, and whether they said that they mean it.
    """
    if not needs_approval(session):
        enqueue(session)
        return
    why = why or f"Tier {session.tier} needs approval."
    if confirmed and by is not None and may(by, Right.APPROVE):
        approved_by_starting(session, why, by)
        enqueue(session)
        return
    session.await_approval(why)
    is_planned = settings.CLAUDEOPS_DRY_FORK and can_be_planned(session)
    approval = ask_for_tier(session, why, _plan(session), told=not is_planned)
    if is_planned:
        ask_for_plan(approval, enqueue=enqueue)


def needs_approval(session: Session) -> bool:
    """By the policy as it is now: somebody may have changed the watch meanwhile."""
    if session.purpose in (*GOES_ON, *CHANGES_NOTHING):
        return False
    return session.cycle.current_policy().needs_approval(session.tier)


def lacks_approval(session: Session, path: Iterable[Session]) -> str:
    """Why it must not be spawned, or nothing. The path leads from the chain's first run to it.

    What goes on with a tier's work needs none of its own; the run that began that work does.
    """
    if session.purpose in CHANGES_NOTHING:
        return ""
    if not session.cycle.current_policy().needs_approval(session.tier):
        return ""
    began = _that_began_it(session, tuple(path))
    approved = Approval.objects.filter(
        session=began, kind=Approval.Kind.TIER, state=Approval.State.APPROVED
    )
    if approved.exists():
        return ""
    return f"Tier {session.tier} needs approval, and nobody has approved it. Start it again."


def begun(session: Session) -> None:
    """What was approved has begun, for the record."""
    Approval.objects.filter(
        session=session, kind=Approval.Kind.TIER, state=Approval.State.APPROVED, used_at=None
    ).update(used_at=timezone.now())


def _that_began_it(session: Session, path: tuple[Session, ...]) -> Session:
    for run in reversed(path):
        if run.tier != session.tier:
            break
        session = run
        if run.purpose not in GOES_ON:
            break
    return session


def _plan(session: Session) -> str:
    asked = f"Asked for: {session.request}" if session.request else ""
    parent = session.parent_session
    reported = f"Tier {parent.tier} reported: {plan_in(parent)}" if parent else ""
    words = session.cycle.prompt if parent is None else ""
    return "\n".join(filter(None, (asked, reported, words)))


def what_it_waits_for(session: Session) -> str:
    """For whoever has just started it."""
    if session.status == Session.Status.AWAITING_APPROVAL:
        return f"Session {session.pk} waits until somebody approves Tier {session.tier}."
    return f"Session {session.pk} is queued."
