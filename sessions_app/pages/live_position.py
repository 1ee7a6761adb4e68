"""How far a viewer has come: the last event of each session that it was sent.

The runs of a cycle mostly follow each other, but not always: a supervisor's last word about one
may be written after the first of the next, and a plan is asked for while a tier waits. One number
could not say what was seen of both, so there is one for each session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

NOTHING = -2
HEADING = -1
"""Where a session is announced, before its first event."""
ALL = 999_999_999
LONGEST_TEXT = 4_000
PAIR = re.compile(r"([0-9]{1,15}):(-1|[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Position:
    seen: Mapping[int, int] = field(default_factory=dict)
    """By session: the number of the last event."""

    def __str__(self) -> str:
        return ",".join(f"{session}:{number}" for session, number in self.seen.items())

    def of(self, session: int) -> int:
        return self.seen.get(session, NOTHING)

    def covers(self, other: Position) -> bool:
        """Everything that the other has seen, this one has seen too."""
        return all(self.of(session) >= number for session, number in other.seen.items())

    def moved(self, session: int, number: int) -> Position:
        return Position({**self.seen, session: max(number, self.of(session))})

    def joined(self, other: Position) -> Position:
        further = {session: max(number, self.of(session)) for session, number in other.seen.items()}
        return Position({**self.seen, **further})


def read_position(text: str | None) -> Position:
    """From outside, so anything may come: what makes no sense counts as not given."""
    parts = (text or "")[:LONGEST_TEXT].split(",")
    pairs = filter(None, map(PAIR.fullmatch, parts))
    return Position({int(pair[1]): int(pair[2]) for pair in pairs})
