"""The pause switch: no new tier starts while it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils import timezone

from escalation.next_step.cycles import Enqueue
from escalation.queue import waiting_sessions
from sessions_app.models import PauseSwitch, Session
from sessions_app.reading.masking import masked

if TYPE_CHECKING:
    from django.contrib.auth.models import User

RUNNING_AGAIN = "Running again. Sessions that were waiting: {count}."


def pause(reason: str, *, by: User | None = None, stop_running: bool = False) -> int:
    """Give back how many running tiers were asked to stop."""
    _set(paused=True, reason=reason, by=by)
    if not stop_running:
        return 0
    return Session.objects.all().ask_to_stop(Session.StopCause.PAUSE, masked(f"paused: {reason}"))


def unpause(*, enqueue: Enqueue, by: User | None = None) -> int:
    """Give back how many sessions were waiting for it."""
    _set(paused=False, reason="", by=by)
    waiting = waiting_sessions(include_taken=True)
    held = [
        session
        for session in Session.objects.filter(status=Session.Status.QUEUED).order_by("pk")
        if session.pk not in waiting
    ]
    for session in held:
        enqueue(session)
    return len(held)


def _set(*, paused: bool, reason: str, by: User | None) -> None:
    PauseSwitch.objects.update_or_create(
        pk=PauseSwitch.THE_ONE,
        defaults={
            "paused": paused,
            "reason": reason[:300],
            "changed_by": by,
            "changed_at": timezone.now(),
        },
    )
