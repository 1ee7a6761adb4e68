"""django-q2's queue in the database, but a worker that has nothing to do sleeps until it is woken.

A task is put in inside the transaction of the caller, and the bell rings when that commits. The
worker looks by itself every `poll` seconds, and when the lock of a task runs out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from multiprocessing.synchronize import Event

from django.db import Error, connections
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ

from escalation.queue.bell import bell_for
from escalation.queue.hosts import queues_of_this_host
from sessions_app.models.clock import shared_now

logger = logging.getLogger(__name__)

# Asleep, the worker must still notice that it is told to stop.
NAP_SECONDS = 1.0
CLOSING_SECONDS = 0.05
BUSY_SECONDS = 0.03
FOREIGN_SIGNATURE = (
    "it was signed with another CLAUDEOPS_SECRET_KEY than this host's. Give all hosts the same."
)

Taken = list[tuple[int, str]]
"""Key and payload of the tasks that are now ours."""


class WakingBroker(ORM):  # type: ignore[misc]  # django-q2 has no types
    closing: Event | None = None
    """Set by a worker before it forks. Once it is on, nothing more is taken: a run that is asked to
    stop queues its successor, which must not start in a worker that is going away."""

    has_idle_worker: Callable[[], bool] = staticmethod(lambda: True)
    """Set like the other. Without an idle worker nothing is taken: what waits behind a long tier
    here could run on another host, and would be lost for a while with this one."""

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(list_key)
        self._bell = bell_for(Conf.ORM)
        self._next_look = time.monotonic()
        self._unreadable: set[int] = set()

    def enqueue(self, task: str) -> int:
        """Due by the clock that every host reads: by its own, one that is ahead would hold the task
        back from the others."""
        queue = self.get_connection()
        row: OrmQ = queue.create(
            key=self.list_key or Conf.CLUSTER_NAME, payload=task, lock=shared_now()
        )
        self._bell.ring_at_commit()
        return int(row.pk)

    def dequeue(self) -> Taken:
        """Oldest first. Called again and again: an empty answer is a nap that has ended."""
        if not self.has_idle_worker():
            time.sleep(BUSY_SECONDS)
            return []
        left = self._next_look - time.monotonic()
        if left > 0 and not self._bell.wait(min(left, NAP_SECONDS)):
            return []
        if self.closing is not None and self.closing.is_set():
            time.sleep(CLOSING_SECONDS)
            return []
        self._bell.listen()
        try:
            return self._look()
        except Error:
            logger.exception("The queue cannot be read; it is tried again in %s s", Conf.POLL)
            connections[Conf.ORM].close()
            self._next_look = time.monotonic() + Conf.POLL
            return []

    def _look(self) -> Taken:
        now = shared_now()
        # Not `get_connection`, which opens a new one each time and takes longer than the look.
        ours = OrmQ.objects.using(Conf.ORM).filter(queues_of_this_host(self.list_key))
        ours = ours.exclude(pk__in=self._unreadable)
        due = list(ours.filter(lock__lte=now).order_by("pk")[: Conf.BULK])
        if due:
            return [(task.pk, task.payload) for task in due if self._take(task, now)]
        next_due = ours.order_by("lock").values_list("lock", flat=True).first()
        self._next_look = time.monotonic() + seconds_to_sleep(now, next_due)
        return []

    def fail(self, task_id: int) -> None:
        """Asked for when a task cannot be read. It is not thrown away: other hosts may read it."""
        self._unreadable.add(task_id)
        OrmQ.objects.using(Conf.ORM).filter(pk=task_id).update(lock=shared_now())
        logger.error("Task %s in the queue is left alone: %s", task_id, FOREIGN_SIGNATURE)

    def _take(self, task: OrmQ, now: datetime) -> bool:
        """False: another worker was faster."""
        free = OrmQ.objects.using(Conf.ORM).filter(pk=task.pk, lock=task.lock)
        return bool(free.update(lock=now + timedelta(seconds=Conf.RETRY)))


def seconds_to_sleep(now: datetime, next_due: datetime | None) -> float:
    longest = float(Conf.POLL)
    if next_due is None:
        return longest
    return min(longest, max(0.0, (next_due - now).total_seconds()))
