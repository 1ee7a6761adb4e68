"""Rows and values that many tests of the engine begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from escalation.queue import leave_to_caller
from escalation.report import Report
from escalation.supervisor import cycles
from sessions_app.models import Cycle, Session, SessionEvent
from tests.factories import WatchFactory

CONVERSATION = "0a0a0a0a-0000-4000-8000-000000000001"


def queued_session(workdir: Path, *, tier: int = 1, **watch: Any) -> Session:
    with leave_to_caller():
        cycle = cycles.start(
            WatchFactory(workdir=str(workdir), **watch), trigger=Cycle.Trigger.MANUAL, tier=tier
        )
    return cycle.sessions.get()


def a_report(
    *,
    needed: bool = False,
    reason: str = "",
    services: tuple[tuple[str, str], ...] = (("web", "healthy"),),
    actions: tuple[tuple[str, str], ...] = (),
) -> Report:
    return {
        "summary": "What was seen.",
        "services": [{"name": name, "status": status} for name, status in services],
        "events": [],
        "actions_taken": [{"action": action, "result": result} for action, result in actions],
        "escalation": {"needed": needed, "reason": reason, "services": []},
    }


HEALTHY = a_report()
ESCALATE = a_report(needed=True, reason="web must be restarted", services=(("web", "down"),))


def notes_of(session: Session, kind: str) -> list[str]:
    """Texts of the notes of one kind about a session."""
    events = session.events.filter(source=SessionEvent.Source.SUPERVISOR, kind=kind)
    return [event.payload["text"] for event in events]
