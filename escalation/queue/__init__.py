"""Handing work to the django-q2 worker: one task per session."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.tasks import async_task

from escalation.queue.hosts import queue_of, words_of
from sessions_app.models import Session
from sessions_app.models.clock import shared_now

RUN_SESSION = "escalation.tasks.run_session"
# A queued session that nobody has taken for so long has lost its task.
LOST_TASK_AGE = timedelta(seconds=45)


def waiting_sessions(*, include_taken: bool) -> set[int]:
    """Sessions with a task in the queue; a taken task is one that some worker has fetched.

    One that was taken long ago and still has a queued session was lost with whoever took it: a
    session is claimed within moments, and a second delivery of it does no harm.
    """
    now = shared_now()
    rows = OrmQ.objects.filter(lock__lte=now)
    if include_taken:
        taken_lately = now + timedelta(seconds=Conf.RETRY) - LOST_TASK_AGE
        rows = OrmQ.objects.filter(Q(lock__lte=now) | Q(lock__gte=taken_lately))
    tasks = (row.task for row in rows)
    return {
        int(task["args"][0])
        for task in tasks
        if task.get("func") == RUN_SESSION and task.get("args")
    }


def enqueue(session: Session) -> None:
    """With the queue in the same database, this is part of the caller's transaction."""
    words = words_of(session)
    async_task(
        RUN_SESSION,
        session.pk,
        broker=get_broker(queue_of(words)) if words else None,
        task_name=f"session-{session.pk}-tier-{session.tier}",
        group=f"cycle-{session.cycle_id}",
    )
