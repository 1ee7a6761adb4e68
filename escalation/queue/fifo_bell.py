"""The bell of one machine: each listener has a FIFO in the state directory.

Any number of processes may listen and ring. A FIFO is visible under its name only while somebody
has it open, so one that nobody has open was left by a process that died: the next ring removes it.
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

from django.db import transaction

logger = logging.getLogger(__name__)

AT_ONCE = 65536


@dataclass(frozen=True, slots=True)
class Ear:
    path: Path
    descriptor: int
    owner: int
    """A forked process must have an ear of its own, or two would share the rings of one."""

    def is_open_to_all(self) -> bool:
        """Somebody may have cleaned the directory up."""
        try:
            return os.stat(self.path).st_ino == os.fstat(self.descriptor).st_ino
        except OSError:
            return False


class FifoBell:
    def __init__(self, directory: Path, database: str) -> None:
        self._directory = directory
        self._database = database
        self._ear: Ear | None = None

    def ring_at_commit(self) -> None:
        transaction.on_commit(self.ring, using=self._database, robust=True)

    def ring(self) -> None:
        for path in self._directory.glob("*.fifo"):
            _ring_one(path)

    def listen(self) -> None:
        if self._ear and self._ear.owner == os.getpid() and self._ear.is_open_to_all():
            return
        if self._ear:
            os.close(self._ear.descriptor)
            self._ear = None
        try:
            self._ear = _new_ear(self._directory)
        except OSError as error:
            logger.warning("No bell in %s, the queue is only polled: %s", self._directory, error)

    def wait(self, seconds: float) -> bool:
        if self._ear is None:
            time.sleep(seconds)
            return False
        poll = select.poll()
        poll.register(self._ear.descriptor, select.POLLIN)
        rang = bool(poll.poll(seconds * 1000))
        if rang:
            os.read(self._ear.descriptor, AT_ONCE)  # many rings are one
        return rang


def _new_ear(directory: Path) -> Ear:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = uuid.uuid4().hex
    quiet, path = directory / f"{name}.new", directory / f"{name}.fifo"
    os.mkfifo(quiet, 0o600)
    try:
        # Also for writing: an end that somebody holds open is never at its end.
        descriptor = os.open(quiet, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        quiet.rename(path)
    except OSError:
        quiet.unlink(missing_ok=True)
        raise
    return Ear(path, descriptor, os.getpid())


def _ring_one(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nobody listens there any more
            with contextlib.suppress(OSError):
                path.unlink()
        return
    try:
        with contextlib.suppress(OSError):  # full of rings: the listener has enough of them
            os.write(descriptor, b"!")
    finally:
        os.close(descriptor)
