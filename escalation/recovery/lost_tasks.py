"""Queued sessions that no task of the queue stands for any more."""

from __future__ import annotations

from django.utils import timezone

from escalation.queue import LOST_TASK_AGE, waiting_sessions
from sessions_app.models import Session


def without_task(*, at_start: bool) -> list[Session]:
    """When a worker starts, the tasks that its predecessor held are dead; later, only age tells."""
    waiting = waiting_sessions(include_taken=not at_start)
    queued = Session.objects.filter(status=Session.Status.QUEUED).select_related("cycle__watch")
    if not at_start:
        # Who waits for a place has no task on purpose, until it is given one.
        queued = queued.filter(
            created_at__lt=timezone.now() - LOST_TASK_AGE, waiting_since__isnull=True
        )
    return [session for session in queued if session.pk not in waiting]
