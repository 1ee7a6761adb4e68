"""One `up` for each state directory: the second is told where the first runs.

Nothing of Django is imported here. The lock is the kernel's, so a process that dies leaves none.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

NAME = "up.lock"


@dataclass(frozen=True, slots=True)
class Holder:
    pid: int
    address: str
    since: str

    @property
    def sentence(self) -> str:
        return (
            f"Claude Ops runs from this state directory already: at {self.address}, process "
            f"{self.pid}, since {self.since}. Stop that one first (Ctrl-C there, or kill "
            f"{self.pid}), or set CLAUDEOPS_STATE_DIR for a second installation."
        )


class Taken(Exception):
    def __init__(self, holder: Holder) -> None:
        super().__init__(holder.sentence)


def take(state: Path, address: str) -> int:
    """A descriptor that holds the lock until this process ends, also if it turns into another."""
    descriptor = os.open(state / NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Taken(_read(state)) from None
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(Holder(os.getpid(), address, since))).encode(), 0)
    os.set_inheritable(descriptor, True)
    return descriptor


def holder_of(state: Path) -> Holder | None:
    """Who runs there now, if anybody does."""
    try:
        descriptor = os.open(state / NAME, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(state)
    finally:
        os.close(descriptor)
    return None


def _read(state: Path) -> Holder:
    """Written a moment after the lock was taken: what cannot be read yet is not known."""
    try:
        return Holder(**json.loads((state / NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return Holder(0, "an address not yet known", "just now")
