"""Handing work to the django-q2 worker: one task per session."""

from __future__ import annotations

from django_q.tasks import async_task

from sessions_app.models import Session


def enqueue(session: Session) -> None:
    """With the queue in the same database, this is part of the caller's transaction."""
    async_task(
        "escalation.tasks.run_session",
        session.pk,
        task_name=f"session-{session.pk}-tier-{session.tier}",
        group=f"cycle-{session.cycle_id}",
    )
