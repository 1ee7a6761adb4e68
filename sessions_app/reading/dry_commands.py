"""What a dry run would have run: commands that were denied because nothing may be changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sessions_app.models import Session, SessionEvent
from sessions_app.reading.plain_text import as_text, cut
from sessions_app.reading.stream_shape import mapping
from sessions_app.reading.walls import DENY, GATE, LONGEST_COMMAND, read_walls

MOST_SHOWN = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class DryCommand:
    session: int
    tier: int
    command: str


def is_dry(session: Session) -> bool:
    """By what held the run, not by what its watch says today."""
    walls = read_walls(session.walls)
    return walls is not None and walls.changes_nothing and not session.is_question


def would_have_run(sessions: Iterable[Session]) -> tuple[DryCommand, ...]:
    """In their order, each once for a run. One query, and none where no run was dry."""
    tiers = {session.pk: session.tier for session in sessions if is_dry(session)}
    if not tiers:
        return ()
    denied = SessionEvent.objects.filter(
        session__in=tiers,
        source=SessionEvent.Source.SUPERVISOR,
        kind=GATE,
        payload__verdict=DENY,
        payload__allowed_from__gt=0,
    ).order_by("session_id", "sequence")
    found: dict[DryCommand, None] = {}
    for event in denied.only("session_id", "payload"):
        data, tier = mapping(event.payload), tiers[event.session_id]
        if data["allowed_from"] <= tier:
            command = cut(as_text(data.get("command")), LONGEST_COMMAND)
            found[DryCommand(session=event.session_id, tier=tier, command=command)] = None
    return tuple(found)[:MOST_SHOWN]
