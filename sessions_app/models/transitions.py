"""Which status may follow which: the one table that every change goes through."""

from __future__ import annotations

from collections.abc import Mapping

ENDINGS = frozenset({"completed", "escalated", "failed", "timed_out", "interrupted", "cancelled"})

ALLOWED: Mapping[str, frozenset[str]] = {
    "queued": frozenset({"running", "awaiting_approval", "cancelled", "failed", "expired"}),
    "awaiting_approval": frozenset({"queued", "cancelled", "expired"}),
    # Put back before its process began: the pause switch was faster.
    "running": ENDINGS | {"queued"},
    # A person may still send a finished tier's findings on to the next one.
    "completed": frozenset({"escalated"}),
    "failed": frozenset({"escalated"}),
    "timed_out": frozenset({"escalated"}),
    # What was cut off may be continued, until its conversation is too old.
    "interrupted": frozenset({"escalated", "expired"}),
    "escalated": frozenset(),
    "cancelled": frozenset(),
    "expired": frozenset(),
}

# The same tier may be run once more after one of these.
RETRIED = frozenset({"failed", "timed_out", "interrupted", "cancelled"})


class IllegalTransition(Exception):
    """A session was asked to move to a status that it cannot have next."""


def sources_of(target: str) -> list[str]:
    """The statuses from which a session may move to this one."""
    return [status for status, targets in ALLOWED.items() if target in targets]
