"""Taking an answer: once, by a conditional update, from someone who may at that very moment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from escalation.errors import OperationRefused
from sessions_app.access.roles import Right, may, refusal
from sessions_app.models import Approval, Cycle, Session
from sessions_app.reading.masking import masked

if TYPE_CHECKING:
    from datetime import datetime

State = Approval.State
NO_LONGER = {
    State.APPROVED: "was approved already",
    State.REJECTED: "was rejected already",
    State.EXPIRED: "has expired: nobody answered in time",
    State.WITHDRAWN: "is not asked any more: the run is over",
}


def answer(approval: Approval, state: str, *, by: User, note: str = "") -> Approval:
    """Raises OperationRefused with what to do. The caller's transaction, if there is one, holds
    what follows from the answer."""
    note = checked_note(note, state)
    with transaction.atomic():
        why = objection_to(approval, User.objects.select_for_update().filter(pk=by.pk).first())
        if why:
            raise OperationRefused(why)
        answered = Approval.objects.filter(
            pk=approval.pk, state=State.WAITING, expires_at__gt=timezone.now()
        ).update(state=state, decided_at=timezone.now(), decided_by=by, note=masked(note))
        approval.refresh_from_db()
        if not answered:
            raise OperationRefused(too_late(approval))
    return approval


def objection_to(approval: Approval, user: User | None) -> str:
    """Why this account may not answer, or nothing. Asked anew, whatever a page said before."""
    if user is None:
        return "There is no such account any more."
    if not may(user, Right.APPROVE):
        return refusal(user, Right.APPROVE)
    cycle = approval.session.cycle
    if cycle.requested_by_id == user.pk and cycle.trigger not in Cycle.ATTENDED_TRIGGERS:
        return (
            f"{user.get_username()} asked for this run without being there, so somebody else has "
            "to answer."
        )
    return ""


def too_late(approval: Approval) -> str:
    if approval.is_overdue:
        return f"Approval {approval.pk} {NO_LONGER[State.EXPIRED]}."
    by = f" by {approval.decided_by.get_username()}" if approval.decided_by else ""
    said = NO_LONGER.get(State(approval.state), "cannot be answered now")
    return f"Approval {approval.pk} {said}{by}. Your answer changes nothing."


def checked_note(note: str, state: str) -> str:
    """A form sends each line end as two characters and counts it as one."""
    said = note.strip().replace("\r\n", "\n")
    if len(said) > Approval.LONGEST_NOTE:
        raise OperationRefused(
            f"A note has at most {Approval.LONGEST_NOTE} characters; this has {len(said)}. Nothing "
            "was answered."
        )
    if state == State.REJECTED and not said:
        raise OperationRefused("Say why it is rejected: the note is what the run is told.")
    return said


def withdraw(session: Session) -> int:
    """The run is over: its commands are not asked for any more."""
    asked = Approval.objects.filter(session=session, kind=Approval.Kind.COMMAND)
    return _closed(asked, State.WITHDRAWN)


def expire(numbers: Iterable[int], now: datetime) -> int:
    overdue = Approval.objects.filter(pk__in=numbers, expires_at__lte=now)
    return _closed(overdue, State.EXPIRED)


def close(approval: Approval, state: str) -> bool:
    """End a question that nobody answered."""
    return bool(_closed(Approval.objects.filter(pk=approval.pk), state))


def _closed(approvals: QuerySet[Approval], state: str) -> int:
    waiting = approvals.filter(state=State.WAITING)
    return waiting.update(state=state, decided_at=timezone.now())
