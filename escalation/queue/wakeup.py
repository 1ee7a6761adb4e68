"""Wakes sleeping workers when a task is added to the queue.

A wakeup may get lost (a full disk, a server that restarts, a process that dies after its commit).
That costs only time, because the worker polls as well.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from django.conf import settings
from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    import psycopg


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


logger = logging.getLogger(__name__)

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
