"""Answers to approvals and their expiry, in one transaction with what follows.

The session that waits for the approval of a command reads the answer itself
(`run/command_checks`).
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from django.utils import timezone

from escalation.errors import OperationRefused, RefusalCode
from escalation.incidents import recorder
from escalation.queue import enqueue_session, installation_lock
from escalation.supervisor import approvals
from escalation.supervisor.conclude import finish_chain
from escalation.supervisor.successors import ask_for_plan, give_up
from sessions_app.models import Approval, Cycle, Session

if TYPE_CHECKING:
    from django.contrib.auth.models import User


logger = logging.getLogger(__name__)

State, Status = Approval.State, Session.Status
REJECTED = "Rejected: it does not run."


def approve(approval: Approval, *, by: User, way: str = "", note: str = "") -> Approval:
    """Approves, and enqueues the session of a tier. Raises OperationRefused."""
    expire_if_overdue(approval)
    with installation_lock():
        approval = approvals.answer(approval, State.APPROVED, by=by, way=way, note=note)
        recorder.note_answer(approval)
        give_up(approval)
        if approval.kind == Approval.Kind.TIER:
            session = _session_of(approval)
            if not session.let_start(approval.answer_text):
                raise OperationRefused(
                    RefusalCode.SESSION_STATUS,
                    f"Session {session.pk} is {session.get_status_display()}: it no longer "
                    "waits for approval.",
                )
            enqueue_session(session)
    return approval


def reject(approval: Approval, *, by: User, way: str = "", note: str) -> Approval:
    """Rejects. The cycle of a tier then needs a person. Raises OperationRefused."""
    expire_if_overdue(approval)
    with installation_lock():
        approval = approvals.answer(approval, State.REJECTED, by=by, way=way, note=note)
        recorder.note_answer(approval)
        give_up(approval)
        if approval.kind == Approval.Kind.TIER:
            _end(
                approval,
                Status.CANCELLED,
                f"Tier {approval.session.tier} does not run. {approval.answer_text}",
            )
    return approval


def press(pressed: approvals.Press) -> str:
    """Answers by a button in a message. Returns what follows. Raises OperationRefused."""
    approval, by, state, way, _channel = pressed
    if state == State.APPROVED:
        return what_follows(approve(approval, by=by, way=way))
    where = Approval.Way(way).label
    reject(approval, by=by, way=way, note=f"Rejected with the button {where}.")
    return REJECTED


def what_follows(approval: Approval) -> str:
    if approval.kind == Approval.Kind.TIER:
        return f"Approved: Tier {approval.session.tier} is queued."
    return "Approved: the command runs as soon as its session has seen it."


def plan(approval: Approval, *, by: User) -> Session:
    """Starts a plan session before the answer. Raises OperationRefused."""
    with installation_lock():
        return ask_for_plan(approval, by=by)


def expire_overdue(now: datetime | None = None) -> int:
    """Expires overdue approvals. Returns how many; an error does not stop the others."""
    now = now or timezone.now()
    overdue = Approval.objects.filter(state=State.WAITING, expires_at__lte=now)
    return sum(_expired(approval, now) for approval in overdue.select_related("session"))


def expire_if_overdue(approval: Approval) -> None:
    if approval.is_overdue:
        _expired(approval, timezone.now())


def _expired(approval: Approval, now: datetime) -> bool:
    try:
        with installation_lock():
            if not approvals.expire([approval.pk], now):
                return False
            give_up(approval)
            if approval.kind == Approval.Kind.TIER:
                _end(
                    approval,
                    Status.EXPIRED,
                    f"Tier {approval.session.tier} was not approved in time. Start the tier again "
                    "if it should run.",
                )
    except Exception:
        logger.exception("Could not expire approval %s", approval.pk)
        return False
    return True


def _end(approval: Approval, status: str, reason: str) -> None:
    session = _session_of(approval)
    session.finish(status, reason, error=reason)
    finish_chain(session, Cycle.Outcome.NEEDS_PERSON, reason)


def _session_of(approval: Approval) -> Session:
    return Session.objects.select_related("cycle__watch").get(pk=approval.session_id)
