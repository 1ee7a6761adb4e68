"""How a run begins: with a fresh conversation, or by resuming its parent's.

One value says it all, so a command can never both resume and start anew.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fresh:
    why: str


@dataclass(frozen=True, slots=True)
class Resume:
    session_id: str
    why: str


Continuation = Fresh | Resume


def continuation_from(parent_session_id: str | None, parent_tier: int | None) -> Continuation:
    """A run with a parent continues the parent's conversation."""
    if parent_session_id is None:
        return Fresh(why="first run of the cycle")
    return Resume(
        session_id=parent_session_id, why=f"continues the conversation of Tier {parent_tier}"
    )
