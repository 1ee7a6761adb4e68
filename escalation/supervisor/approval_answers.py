"""What follows a person's answer about a tier, or that nobody gave one: in one transaction with it.

A command's answer is picked up by the run that waits for it (`run/held_commands`).
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from django.db import transaction
from django.utils import timezone

from escalation.approvals import answering
from escalation.errors import OperationRefused
from escalation.next_step.conclude import finish_cycle
from escalation.next_step.dry_fork import ask_for_plan, give_up
from escalation.queue import enqueue as to_the_queue
from escalation.queue.one_at_a_time import one_at_a_time
from sessions_app.models import Approval, Cycle, Session

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from escalation.next_step.cycles import Enqueue

logger = logging.getLogger(__name__)

State, Status = Approval.State, Session.Status


def approve(
    approval: Approval, *, by: User, note: str = "", enqueue: Enqueue = to_the_queue
) -> Approval:
    """Raises OperationRefused. A tier is in the queue afterwards."""
    expire_if_overdue(approval)
    with transaction.atomic():
        approval = answering.answer(approval, State.APPROVED, by=by, note=note)
        give_up(approval)
        if approval.kind == Approval.Kind.TIER:
            session = _session_of(approval)
            if not session.let_start(f"approved by {by.get_username()}"):
                raise OperationRefused(
                    f"Session {session.pk} is {session.get_status_display()}: it does not wait "
                    "for an approval any more."
                )
            enqueue(session)
    return approval


def reject(approval: Approval, *, by: User, note: str) -> Approval:
    """Raises OperationRefused. A tier never starts, and its cycle asks for a person."""
    expire_if_overdue(approval)
    with one_at_a_time():
        approval = answering.answer(approval, State.REJECTED, by=by, note=note)
        give_up(approval)
        if approval.kind == Approval.Kind.TIER:
            _end(
                approval,
                Status.CANCELLED,
                f"{by.get_username()} did not approve Tier {approval.session.tier}: "
                f"{approval.note}",
            )
    return approval


def plan(approval: Approval, *, by: User, enqueue: Enqueue = to_the_queue) -> Session:
    """A person wants to see what the tier would do, before they answer. Raises OperationRefused."""
    with transaction.atomic():
        return ask_for_plan(approval, enqueue=enqueue, by=by)


def expire_overdue(now: datetime | None = None) -> int:
    """All that nobody answered in time: how many. One that fails does not keep the others."""
    now = now or timezone.now()
    overdue = Approval.objects.filter(state=State.WAITING, expires_at__lte=now)
    return sum(_expired(approval, now) for approval in overdue.select_related("session"))


def expire_if_overdue(approval: Approval) -> None:
    if approval.is_overdue:
        _expired(approval, timezone.now())


def _expired(approval: Approval, now: datetime) -> bool:
    try:
        with one_at_a_time():
            if not answering.expire([approval.pk], now):
                return False
            give_up(approval)
            if approval.kind == Approval.Kind.TIER:
                _end(
                    approval,
                    Status.EXPIRED,
                    f"Nobody approved Tier {approval.session.tier} in time. Look at it, and start "
                    "the tier again if it should run.",
                )
    except Exception:
        logger.exception("Approval %s could not be brought to its end", approval.pk)
        return False
    return True


def _end(approval: Approval, status: str, reason: str) -> None:
    session = _session_of(approval)
    session.finish(status, reason, error=reason)
    finish_cycle(session.cycle, Cycle.Outcome.NEEDS_PERSON, reason)


def _session_of(approval: Approval) -> Session:
    return Session.objects.select_related("cycle__watch").get(pk=approval.session_id)
