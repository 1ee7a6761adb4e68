"""The commands of a session, as the gate judged them: what was denied or contained first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.db.models import Max, QuerySet

from sessions_app.models import Session, SessionEvent
from sessions_app.reading.walls import (
    GATE,
    GATE_END,
    VERDICTS,
    JudgedCommand,
    judged_commands,
)

COMMANDS_SHOWN = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    verdict: str
    word: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
    rows: tuple[JudgedCommand, ...]
    choices: tuple[Choice, ...]
    """By verdict, to look at one kind alone."""
    chosen: str
    total: int
    left_out: int
    version: str


def load_commands(session: Session, chosen: str = "") -> Commands:
    """One query."""
    events = list(_events(session).only("session", "kind", "payload", "created_at", "sequence"))
    judged = judged_commands(events)
    chosen = chosen if chosen in VERDICTS else ""
    rank = {verdict: place for place, verdict in enumerate(VERDICTS)}
    wanted = [command for command in judged if not chosen or command.verdict == chosen]
    rows = sorted(wanted, key=lambda command: rank.get(command.verdict, -1))
    counts = Counter(command.verdict for command in judged)
    return Commands(
        rows=tuple(rows[:COMMANDS_SHOWN]),
        choices=tuple(
            Choice(verdict=verdict, word=word, count=counts[verdict])
            for verdict, word in VERDICTS.items()
        ),
        chosen=chosen,
        total=len(judged),
        left_out=max(0, len(rows) - COMMANDS_SHOWN),
        version=_version(session, events[-1].sequence if events else 0),
    )


def commands_version(session: Session) -> str:
    """The same token without reading a single command."""
    last = _events(session).aggregate(last=Max("sequence"))["last"]
    return _version(session, last or 0)


def _version(session: Session, last: int) -> str:
    return f"{last}-{'open' if session.is_open else 'ended'}"


def _events(session: Session) -> QuerySet[SessionEvent]:
    return session.events.filter(
        source=SessionEvent.Source.SUPERVISOR, kind__in=(GATE, GATE_END)
    ).order_by("sequence")
