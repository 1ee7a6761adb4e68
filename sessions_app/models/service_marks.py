"""What the last rounds said of one service: a mark for each round that named it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

KEPT = 40


class Mark(NamedTuple):
    """Rounds in the order in which they began."""

    cycle: int
    status: str
    at: int
    """When the round began, in seconds."""


def read_marks(stored: Iterable[Sequence[object]]) -> list[Mark]:
    return [Mark(int(str(cycle)), str(status), int(str(at))) for cycle, status, at in stored]


def with_mark(marks: Iterable[Mark], new: Mark) -> list[Mark]:
    """A round that ends a second time has its mark replaced."""
    return sorted([*(mark for mark in marks if mark.cycle != new.cycle), new])[-KEPT:]


def since(marks: Sequence[Mark], before: int | None = None) -> int:
    """When the last status began. Where all that is kept says the same it is older: then what was
    known before counts."""
    first = len(marks) - 1
    while first > 0 and marks[first - 1].status == marks[-1].status:
        first -= 1
    known = marks[first].at
    is_older = first == 0 and len(marks) == KEPT and before is not None
    return min(known, before) if is_older and before is not None else known
