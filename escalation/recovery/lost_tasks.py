"""Queued sessions that no task of the queue stands for any more."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from escalation.queue import waiting_sessions
from sessions_app.models import Session

# A queued session that nobody has taken for so long has lost its task.
LOST_TASK_AGE = timedelta(minutes=2)


def without_task(*, at_start: bool) -> list[Session]:
    """When a worker starts, the tasks that its predecessor held are dead; later, only age tells."""
    waiting = waiting_sessions(include_taken=not at_start)
    queued = Session.objects.filter(status=Session.Status.QUEUED).select_related("cycle__watch")
    if not at_start:
        queued = queued.filter(created_at__lt=timezone.now() - LOST_TASK_AGE)
    return [session for session in queued if session.pk not in waiting]
