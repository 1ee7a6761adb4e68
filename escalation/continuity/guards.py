"""How a run begins: by resuming its parent's conversation, by handoff, or fresh.

One pure function over facts, and one value that says it all: a command built from it either resumes
or carries the context in its prompt, never both and never neither. Each guard has a name, which is
stored with the session, and the facts that were seen are stored beside it. A changed model is no
guard: tiers change it on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from sessions_app.reading.formatting import exact_percent

# The one way in which the CLI writes an id; it takes anything else for a title.
CONVERSATION_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Guard(StrEnum):
    """Why a conversation must not be resumed, in the order in which it is looked at."""

    CLI_CANNOT_RESUME = "cli_cannot_resume"
    FORCE_FRESH = "force_fresh"
    NOT_KEPT = "not_kept"
    NO_SESSION_ID = "no_session_id"
    NOT_A_UUID = "not_a_uuid"
    RETIRED = "retired"
    EXPIRED = "expired"
    OTHER_RUNTIME = "other_runtime"
    OTHER_DIRECTORY = "other_directory"
    IN_USE = "in_use"
    CONTEXT_FULL = "context_full"
    TRANSCRIPT_UNREADABLE = "transcript_unreadable"
    OTHER_HOST = "other_host"
    TRANSCRIPT_GONE = "transcript_gone"


class Transcript(StrEnum):
    """Where the parent's transcript can be had."""

    NOT_LOOKED = "not looked"
    ON_DISK = "on disk"
    ARCHIVED = "archived"
    UNREADABLE = "unreadable"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True, slots=True)
class ParentFacts:
    """What is known about the run whose conversation would be continued."""

    tier: int
    session_id: str
    kept: bool = True
    """Its conversation was saved at all."""
    retired_because: str = ""
    expired: bool = False
    age_seconds: float = 0
    cli_version: str = ""
    same_binary: bool = True
    same_directory: bool = True
    same_host: bool = True
    in_use_by: int | None = None
    context_tokens: int = 0
    transcript: Transcript = Transcript.NOT_LOOKED


@dataclass(frozen=True, kw_only=True, slots=True)
class NextRun:
    """What is known about the run to come, and about the CLI of this host."""

    tier: int
    cli_version: str
    can_resume: bool
    force_fresh: bool
    context_window: int
    """Of the next tier's model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeLimits:
    context_threshold: Decimal
    max_age_seconds: int

    def __str__(self) -> str:
        return (
            f"Resume limits: context up to {exact_percent(self.context_threshold)} "
            f"(CLAUDEOPS_RESUME_CONTEXT_THRESHOLD), age up to {self.max_age_seconds} s "
            "(CLAUDEOPS_RESUME_MAX_AGE)."
        )


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
    for guard, objection in (*CHEAP_GUARDS, *COSTLY_GUARDS):
        if why := objection(parent, run, limits):
            return Handoff(guard=guard, why=why)
    return Resume(
        session_id=parent.session_id,
        why=f"continues the conversation of Tier {parent.tier}: "
        f"{_occupancy(parent, run)} of the context in use, "
        f"under the limit of {exact_percent(limits.context_threshold)}",
    )


def cheap_objection(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> bool:
    """Whether the answer is no already, before anybody looks at the disk."""
    return any(objection(parent, run, limits) for _guard, objection in CHEAP_GUARDS)


def _occupancy(parent: ParentFacts, run: NextRun) -> str:
    return f"{Decimal(parent.context_tokens) / Decimal(run.context_window):.1%}"


def _cli_cannot_resume(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return "" if run.can_resume else f"this CLI ({run.cli_version}) cannot resume"


def _force_fresh(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return "a fresh conversation was asked for" if run.force_fresh else ""


def _not_kept(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return "" if parent.kept else "the conversation of the earlier run was not kept, as asked"


def _no_session_id(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return "" if parent.session_id else "the CLI reported no session id for the earlier run"


def _not_a_uuid(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if CONVERSATION_ID.fullmatch(parent.session_id):
        return ""
    return "the earlier run's id is not a UUID: the CLI would take it for a title"


def _retired(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return (
        f"the conversation is retired: {parent.retired_because}" if parent.retired_because else ""
    )


def _expired(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    # A clock that was set back gives a negative age: that is young, not old.
    if parent.expired or parent.age_seconds > limits.max_age_seconds:
        return f"the conversation is older than {limits.max_age_seconds} s"
    return ""


def _other_runtime(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if parent.cli_version != run.cli_version:
        return f"the earlier run used CLI {parent.cli_version}, this host has {run.cli_version}"
    return "" if parent.same_binary else "the earlier run used another binary of the CLI"


def _other_directory(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return "" if parent.same_directory else "the earlier run worked in another directory"


def _in_use(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if parent.in_use_by is None:
        return ""
    return f"session {parent.in_use_by} is using the conversation now"


def _context_full(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if parent.context_tokens <= limits.context_threshold * run.context_window:
        return ""
    return (
        f"context window pressure: {parent.context_tokens} of {run.context_window} tokens "
        f"({_occupancy(parent, run)}) are over the limit of "
        f"{exact_percent(limits.context_threshold)}"
    )


def _transcript_unreadable(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    unreadable = parent.transcript == Transcript.UNREADABLE
    return "the transcript on disk cannot be read by this user" if unreadable else ""


def _other_host(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if parent.same_host or parent.transcript in (Transcript.ON_DISK, Transcript.ARCHIVED):
        return ""
    return "the earlier run was on another host, and its transcript cannot be restored here"


def _transcript_gone(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    gone = parent.transcript == Transcript.GONE
    return "the transcript is gone from the disk and from the archive" if gone else ""


Objection = Callable[[ParentFacts, NextRun, ResumeLimits], str]

CHEAP_GUARDS: tuple[tuple[Guard, Objection], ...] = (
    (Guard.CLI_CANNOT_RESUME, _cli_cannot_resume),
    (Guard.FORCE_FRESH, _force_fresh),
    (Guard.NOT_KEPT, _not_kept),
    (Guard.NO_SESSION_ID, _no_session_id),
    (Guard.NOT_A_UUID, _not_a_uuid),
    (Guard.RETIRED, _retired),
    (Guard.EXPIRED, _expired),
    (Guard.OTHER_RUNTIME, _other_runtime),
    (Guard.OTHER_DIRECTORY, _other_directory),
    (Guard.IN_USE, _in_use),
    (Guard.CONTEXT_FULL, _context_full),
)
COSTLY_GUARDS: tuple[tuple[Guard, Objection], ...] = (
    (Guard.TRANSCRIPT_UNREADABLE, _transcript_unreadable),
    (Guard.OTHER_HOST, _other_host),
    (Guard.TRANSCRIPT_GONE, _transcript_gone),
)
