"""django-q2's database broker, extended so that an idle worker sleeps until it is woken.

A task is written in the transaction of the caller, and the worker is woken when that commits. It
also polls every `poll` seconds, and when the lock of a task expires.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import ParamSpec

from django.db import Error, connections
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ

from escalation.queue.hosts import queues_of_this_host
from escalation.queue.wakeup import wakeup_for
from sessions_app.models.installation import shared_now
from sessions_app.redaction.redact import redacted

logger = logging.getLogger(__name__)

# A sleeping worker must still notice a request to stop.
NAP_SECONDS = 1.0
CLOSING_SECONDS = 0.05
BUSY_SECONDS = 0.03
FOREIGN_SIGNATURE = (
    "it was signed with a different CLAUDEOPS_SECRET_KEY. Use the same key on all hosts."
)

Taken = list[tuple[int, str]]
"""Keys and payloads of the tasks that this worker has taken."""


class WakingBroker(ORM):  # type: ignore[misc]  # django-q2 has no types
    is_closing: Callable[[], bool] = staticmethod(lambda: False)
    """Set by the worker before it forks. A closing worker takes no tasks: a session that is asked
    to stop queues its successor, which must not start in the same worker."""

    has_idle_worker: Callable[[], bool] = staticmethod(lambda: True)
    """Set like `is_closing`. Without an idle process no task is taken: it would wait behind a long
    session here while another host could run it."""

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(list_key)
        self._wakeup = wakeup_for(Conf.ORM)
        self._next_look = time.monotonic()
        self._unreadable: set[int] = set()
        self.last_added: int | None = None
        """The number of the task that was added last, which django-q2 does not return."""

    def enqueue(self, task: str) -> int:
        """Writes a task that is due by the shared clock. A host whose own clock is ahead would hold
        the task back from the others."""
        queue = self.get_connection()
        row: OrmQ = queue.create(
            key=self.list_key or Conf.CLUSTER_NAME, payload=task, lock=shared_now()
        )
        self._wakeup.wake_at_commit()
        self.last_added = int(row.pk)
        return self.last_added

    def dequeue(self) -> Taken:
        """Returns due tasks, oldest first; an empty list after a short sleep."""
        if not self.has_idle_worker():
            time.sleep(BUSY_SECONDS)
            return []
        left = self._next_look - time.monotonic()
        if left > 0 and not self._wakeup.wait(min(left, NAP_SECONDS)):
            return []
        if self.is_closing():
            time.sleep(CLOSING_SECONDS)
            return []
        self._wakeup.listen()
        try:
            return self._look()
        except Error:
            logger.exception("Could not read the queue; retrying in %s s", Conf.POLL)
            connections[Conf.ORM].close()
            self._next_look = time.monotonic() + Conf.POLL
            return []

    def _look(self) -> Taken:
        now = shared_now()
        # Not `get_connection`, which opens a new connection each time and takes longer than this.
        ours = OrmQ.objects.using(Conf.ORM).filter(queues_of_this_host(self.list_key))
        ours = ours.exclude(pk__in=self._unreadable)
        due = list(ours.filter(lock__lte=now).order_by("pk")[: Conf.BULK])
        if due:
            return [(task.pk, task.payload) for task in due if self._take(task, now)]
        next_due = ours.order_by("lock").values_list("lock", flat=True).first()
        self._next_look = time.monotonic() + seconds_to_sleep(now, next_due)
        return []

    def fail(self, task_id: int) -> None:
        """Skips a task that cannot be read. It stays in the queue: other hosts may read it."""
        self._unreadable.add(task_id)
        OrmQ.objects.using(Conf.ORM).filter(pk=task_id).update(lock=shared_now())
        logger.error("Task %s in the queue is skipped: %s", task_id, FOREIGN_SIGNATURE)

    def _take(self, task: OrmQ, now: datetime) -> bool:
        """Takes a task. Returns False if another worker has taken it."""
        free = OrmQ.objects.using(Conf.ORM).filter(pk=task.pk, lock=task.lock)
        return bool(free.update(lock=now + timedelta(seconds=Conf.RETRY)))


def seconds_to_sleep(now: datetime, next_due: datetime | None) -> float:
    longest = float(Conf.POLL)
    if next_due is None:
        return longest
    return min(longest, max(0.0, (next_due - now).total_seconds()))


Given = ParamSpec("Given")


class TaskFailed(Exception):
    """A task failed. The message is the redacted traceback."""


def with_redacted_failure(task: Callable[Given, str]) -> Callable[Given, str]:
    """Redacts the traceback of a failing task: django-q2 stores it as it is."""

    @wraps(task)
    def run(*args: Given.args, **options: Given.kwargs) -> str:
        try:
            return task(*args, **options)
        except Exception:
            # Not chained: the cause would be printed unredacted.
            raise TaskFailed(redacted(traceback.format_exc())) from None

    return run
