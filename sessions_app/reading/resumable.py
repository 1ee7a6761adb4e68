"""Can a conversation still be resumed? As far as the record knows, with the reason.

The guards look again when a run begins, also at what only the host of that run can see: its CLI,
the directory, the transcript on its disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sessions_app.models import Conversation, Session
from sessions_app.reading.formatting import duration, exact_percent, tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeLimits:
    context: Decimal
    """How full it may be, of the model's window."""
    max_age_seconds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumable:
    is_possible: bool
    why: str


def resumable(
    session: Session, conversation: Conversation | None, limits: ResumeLimits, now: datetime
) -> Resumable:
    objection = _objection(session, conversation, limits, now)
    if objection:
        return Resumable(is_possible=False, why=objection)
    return Resumable(is_possible=True, why=_headroom(session, limits, now))


def _objection(
    session: Session, conversation: Conversation | None, limits: ResumeLimits, now: datetime
) -> str:
    if session.cycle.ephemeral:
        return "it was not kept, as asked"
    if not session.session_id:
        return "the CLI named no conversation"
    if session.is_open:
        return "the run is still in it"
    if conversation is not None and conversation.state != Conversation.State.LIVE:
        return f"it is {conversation.get_state_display()}: {conversation.reason or 'too old'}"
    if conversation is not None and conversation.in_use_by_id:
        return f"session {conversation.in_use_by_id} is using it now"
    age = _age_seconds(session, now)
    if age > limits.max_age_seconds:
        return f"it is {_time(age)} old, and at most {_time(limits.max_age_seconds)} are allowed"
    share = session.context_share
    if share is not None and share > limits.context:
        return f"{share:.0%} of its context is in use, over the limit of {_percent(limits)}"
    return ""


def _headroom(session: Session, limits: ResumeLimits, now: datetime) -> str:
    left = max(0, limits.max_age_seconds - _age_seconds(session, now))
    room = session.context_window * limits.context - session.context_tokens
    if not session.context_window:
        return f"for {_time(left)} yet; how full it is was not reported"
    return f"for {_time(left)} yet, and up to {tokens(int(room))} tokens more"


def _age_seconds(session: Session, now: datetime) -> float:
    used = session.last_activity_at or session.finished_at or session.created_at
    return max(0.0, (now - used).total_seconds())


def _time(seconds: float) -> str:
    return duration(round(seconds) * 1000)


def _percent(limits: ResumeLimits) -> str:
    return exact_percent(limits.context)
