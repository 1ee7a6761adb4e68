"""Handing work to the django-q2 worker: one task per session."""

from __future__ import annotations

from django.utils import timezone
from django_q.models import OrmQ
from django_q.tasks import async_task

from sessions_app.models import Session

RUN_SESSION = "escalation.tasks.run_session"


def waiting_sessions(*, include_taken: bool) -> set[int]:
    """Sessions with a task in the queue; a taken task is one that some worker has fetched."""
    rows = OrmQ.objects.all()
    if not include_taken:
        rows = rows.filter(lock__lte=timezone.now())
    tasks = (row.task for row in rows)
    return {
        int(task["args"][0])
        for task in tasks
        if task.get("func") == RUN_SESSION and task.get("args")
    }


def enqueue(session: Session) -> None:
    """With the queue in the same database, this is part of the caller's transaction."""
    async_task(
        RUN_SESSION,
        session.pk,
        task_name=f"session-{session.pk}-tier-{session.tier}",
        group=f"cycle-{session.cycle_id}",
    )
