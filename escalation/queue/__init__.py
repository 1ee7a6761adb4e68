"""Hands sessions to the django-q2 worker, one task per session.

Every new session goes through `enqueue_session`. Inside `leave_to_caller` the caller runs the
session itself, and no task is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import timedelta

from django.db.models import Q
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.tasks import async_task

from escalation.queue.hosts import labels_of, queue_of
from sessions_app.models import Session
from sessions_app.models.installation import shared_now

RUN_SESSION = "escalation.tasks.run_session"
# A task that was taken this long ago, and whose session is still queued, is lost.
LOST_TASK_AGE = timedelta(seconds=45)


def waiting_sessions(*, include_taken: bool) -> set[int]:
    """Returns the queued sessions that have a task. `include_taken`: also a task that a worker has.

    A task that was taken long ago while its session is still queued was lost with its worker: a
    session is claimed within seconds, and a second delivery does no harm.
    """
    now = shared_now()
    rows = OrmQ.objects.filter(lock__lte=now)
    if include_taken:
        taken_lately = now + timedelta(seconds=Conf.RETRY) - LOST_TASK_AGE
        rows = OrmQ.objects.filter(Q(lock__lte=now) | Q(lock__gte=taken_lately))
    queued = Session.objects.filter(status=Session.Status.QUEUED)
    return set(queued.filter(task_number__in=rows.values("pk")).values_list("pk", flat=True))


def enqueue_session(session: Session) -> None:
    """Hands a session to the worker, or to the receiver of a surrounding `enqueue_with`."""
    _receiver.get()(session)


def add_task(session: Session) -> None:
    """Writes the task of the session, in the caller's transaction."""
    broker = get_broker(queue_of(labels_of(session)))
    async_task(
        RUN_SESSION,
        session.pk,
        broker=broker,
        task_name=f"session-{session.pk}-tier-{session.tier}",
        group=f"cycle-{session.cycle_id}",
    )
    session.task_number = broker.last_added
    Session.objects.filter(pk=session.pk).update(task_number=broker.last_added)


_receiver: ContextVar[Callable[[Session], None]] = ContextVar("receiver", default=add_task)


@contextmanager
def enqueue_with(receiver: Callable[[Session], None]) -> Iterator[None]:
    """Passes sessions that are enqueued inside the block to a receiver instead of the queue."""
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)


def leave_to_caller(*, unless: bool = False) -> AbstractContextManager[None]:
    """Writes no tasks inside the block: the caller runs the new sessions in the foreground.

    `unless`: use the queue nevertheless, for `--queue`.
    """
    return nullcontext() if unless else enqueue_with(lambda session: None)
