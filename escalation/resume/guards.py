"""Decides how a session begins: by resuming its parent's conversation, by handoff, or fresh.

One pure function over facts. The guards are in `sessions_app/history/resume.py`; the guard that
objected and the facts are stored with the session.
"""

from __future__ import annotations

from dataclasses import dataclass

from sessions_app.history.resume import (
    CHEAP_RULES,
    CONVERSATION_ID,
    Guard,
    NextRun,
    ParentFacts,
    ResumeLimits,
    TranscriptLocation,
    first_objection,
    occupancy,
)
from sessions_app.text import exact_percent

__all__ = [
    "CONVERSATION_ID",
    "Continuation",
    "Fresh",
    "Guard",
    "Handoff",
    "NextRun",
    "ParentFacts",
    "Resume",
    "ResumeLimits",
    "TranscriptLocation",
    "cheap_objection",
    "continuation_from",
]


@dataclass(frozen=True, slots=True)
class Fresh:
    why: str


@dataclass(frozen=True, slots=True)
class Resume:
    session_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Handoff:
    guard: Guard
    why: str


Continuation = Fresh | Resume | Handoff


def continuation_from(
    parent: ParentFacts | None, run: NextRun, limits: ResumeLimits
) -> Continuation:
    if parent is None:
        return Fresh(why="first run of the cycle")
    if objection := first_objection(parent, run, limits):
        return Handoff(*objection)
    return Resume(
        session_id=parent.session_id,
        why=f"continues the conversation of Tier {parent.tier}: "
        f"{occupancy(parent, run)} of the context in use, "
        f"under the limit of {exact_percent(limits.context_threshold)}",
    )


def cheap_objection(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> bool:
    """Return whether a guard objects that does not need the disk."""
    return first_objection(parent, run, limits, CHEAP_RULES) is not None
