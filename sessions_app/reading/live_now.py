"""What a running session is doing at this moment, and what it has used so far: from its stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.utils import timezone

from sessions_app.models import Session, SessionEvent
from sessions_app.reading import stream_shape as shape
from sessions_app.reading.event_text import call_words
from sessions_app.reading.masking import masked
from sessions_app.reading.plain_text import as_text, one_line

EVENTS_LOOKED_AT = 60
LONGEST_CALL = 90
TOKEN_KINDS = (
    *("input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCall:
    """A tool call whose result has not come yet."""

    tool: str
    words: str
    since: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRun:
    session: Session
    seconds: int
    limit_seconds: int
    call: OpenCall | None
    """None: the model thinks, or the run has not said anything yet."""
    call_seconds: int
    tokens: int
    budget_usd: Decimal


def load_live_run(session: Session) -> LiveRun:
    """Two queries."""
    now, call = timezone.now(), open_call(_latest_events(session))
    return LiveRun(
        session=session,
        seconds=_seconds(session.started_at, now),
        limit_seconds=settings.CLAUDEOPS_TIERS[session.tier].timeout_seconds,
        call=call,
        call_seconds=_seconds(call.since, now) if call else 0,
        tokens=tokens_in(_usages(session)),
        budget_usd=budget_of(session),
    )


def budget_of(session: Session) -> Decimal:
    """What this run was given, or would be."""
    own = session.max_budget_usd
    return own if own is not None else settings.CLAUDEOPS_TIERS[session.tier].max_budget_usd


def open_call(events: Iterable[SessionEvent]) -> OpenCall | None:
    """The latest call without a result. Events come newest first."""
    answered: set[str] = set()
    for event in events:
        line = shape.mapping(event.payload)
        answered |= shape.answered_calls(line)
        for block in reversed(shape.calls_of(line)):
            if as_text(block.get("id")) not in answered:
                return _call(block, event.created_at)
    return None


def tokens_in(usages: Iterable[tuple[Any, Any]]) -> int:
    """An answer is printed in several lines, each with its usage so far: the last one counts."""
    last = {as_text(message): shape.mapping(usage) for message, usage in usages}
    return sum(_count(usage.get(kind)) for usage in last.values() for kind in TOKEN_KINDS)


def _call(block: Any, since: datetime) -> OpenCall:
    tool, words = call_words(block)
    return OpenCall(tool=tool, words=one_line(masked(words), LONGEST_CALL), since=since)


def _latest_events(session: Session) -> Iterable[SessionEvent]:
    spoken = session.events.filter(
        source=SessionEvent.Source.STREAM, kind__in=["assistant", "user"]
    )
    return spoken.order_by("-sequence")[:EVENTS_LOOKED_AT]


def _usages(session: Session) -> Iterable[tuple[Any, Any]]:
    answers = session.events.filter(source=SessionEvent.Source.STREAM, kind="assistant")
    return answers.order_by("sequence").values_list(
        "payload__message__id", "payload__message__usage"
    )


def _seconds(since: datetime | None, now: datetime) -> int:
    return max(0, int((now - since).total_seconds())) if since else 0


def _count(value: Any) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return max(0, value) if is_number else 0
