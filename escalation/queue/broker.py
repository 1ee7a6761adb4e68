"""django-q2's database broker, extended so that an idle worker sleeps until it is woken.

A task is written in the transaction of the caller, and the worker is woken when that commits. It
also polls every `poll` seconds, and when the lock of a task expires, so a wakeup that gets lost (a
full disk, a server that restarts, a process that dies after its commit) costs only time.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from django.conf import settings
from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ

from escalation.queue import queues_of_this_host
from sessions_app.models.installation import shared_now
from sessions_app.redaction.redact import redacted

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger(__name__)


class QueueWakeup(Protocol):
    def wake_at_commit(self) -> None:
        """Wakes every listener when the caller's transaction is committed."""

    def listen(self) -> None:
        """Starts listening: no later wakeup is missed, even one that comes before `wait`."""

    def wait(self, seconds: float) -> bool:
        """Sleeps until a wakeup comes, or for so many seconds. Returns True for a wakeup."""


def wakeup_for(database: str) -> QueueWakeup:
    if connections[database].vendor == "postgresql":
        return NotifyWakeup(database)
    return FifoWakeup(Path(settings.CLAUDEOPS_STATE_DIR) / "wakeup", database)


READ_BYTES = 65536


@dataclass(frozen=True, slots=True)
class FifoListener:
    path: Path
    descriptor: int
    owner: int
    """The process that opened it: a forked process must open its own."""

    def is_reachable(self) -> bool:
        """Returns False if the file was removed from the directory."""
        try:
            return os.stat(self.path).st_ino == os.fstat(self.descriptor).st_ino
        except OSError:
            return False


class FifoWakeup:
    """Wakes the processes of one host: each listener has a FIFO in the state directory.

    A FIFO has its name only while its listener has it open. One without a reader was left by a
    process that died, and the next wakeup removes it.
    """

    def __init__(self, directory: Path, database: str) -> None:
        self._directory = directory
        self._database = database
        self._listener: FifoListener | None = None

    def wake_at_commit(self) -> None:
        transaction.on_commit(self.wake, using=self._database, robust=True)

    def wake(self) -> None:
        for path in self._directory.glob("*.fifo"):
            _wake_one(path)

    def listen(self) -> None:
        if self._listener and self._listener.owner == os.getpid() and self._listener.is_reachable():
            return
        if self._listener:
            os.close(self._listener.descriptor)
            self._listener = None
        try:
            self._listener = _new_listener(self._directory)
        except OSError as error:
            logger.warning(
                "Could not create a FIFO in %s; the queue is only polled: %s",
                self._directory,
                error,
            )

    def wait(self, seconds: float) -> bool:
        if self._listener is None:
            time.sleep(seconds)
            return False
        poll = select.poll()
        poll.register(self._listener.descriptor, select.POLLIN)
        is_woken = bool(poll.poll(seconds * 1000))
        if is_woken:
            os.read(self._listener.descriptor, READ_BYTES)  # many wakeups are one
        return is_woken


def _new_listener(directory: Path) -> FifoListener:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = uuid.uuid4().hex
    quiet, path = directory / f"{name}.new", directory / f"{name}.fifo"
    os.mkfifo(quiet, 0o600)
    try:
        # Also for writing: a FIFO that has a writer never signals its end.
        descriptor = os.open(quiet, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        quiet.rename(path)
    except OSError:
        quiet.unlink(missing_ok=True)
        raise
    return FifoListener(path, descriptor, os.getpid())


def _wake_one(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its listener has ended
            with contextlib.suppress(OSError):
                path.unlink()
        return
    try:
        with contextlib.suppress(OSError):  # the FIFO is full: its listener wakes anyway
            os.write(descriptor, b"!")
    finally:
        os.close(descriptor)


CHANNEL = "claudeops_queue"


@dataclass(frozen=True, slots=True)
class NotifyListener:
    connection: BaseDatabaseWrapper
    owner: int
    """The process that opened it: a forked process must open its own."""


class NotifyWakeup:
    """Wakes workers on all hosts by NOTIFY, which PostgreSQL delivers at commit."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._listener: NotifyListener | None = None

    def wake_at_commit(self) -> None:
        with connections[self._database].cursor() as cursor:
            cursor.execute(f"NOTIFY {CHANNEL}")

    def listen(self) -> None:
        """Opens its own connection: the one for queries is closed after each."""
        if self._listener and self._listener.owner == os.getpid():
            return
        connection = connections.create_connection(self._database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"LISTEN {CHANNEL}")
        except Error as error:
            logger.warning("LISTEN failed; the queue is only polled: %s", error)
            connection.close()
        else:
            self._listener = NotifyListener(connection, os.getpid())

    def wait(self, seconds: float) -> bool:
        if self._listener is None:
            time.sleep(seconds)
            return False
        driver: Any = self._listener.connection.Database  # type: ignore[attr-defined]
        try:
            return self._is_woken(self._listener.connection.connection, seconds)
        except (driver.Error, OSError) as error:
            logger.warning("LISTEN connection lost; reconnecting: %s", error)
            self._listener.connection.close()
            self._listener = None
            time.sleep(seconds)
            return False

    def _is_woken(self, listener: psycopg.Connection[Any], seconds: float) -> bool:
        # `notifies` with a timeout would wake ten times a second.
        poll = select.poll()
        poll.register(listener.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1000)) and bool(list(listener.notifies(timeout=0)))


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
