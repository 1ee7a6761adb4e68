"""The inbox: what wants something from a person, worst first. Two queries for any number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, Value, When, Window
from django.utils import timezone

from sessions_app.models import Approval, Incident
from sessions_app.reading.glance import Glance, load_glance
from sessions_app.reading.incident_text import wish_of
from sessions_app.reading.unresolved_incidents import unresolved_incidents

READ, SHOWN, DRILLS_SHOWN = 60, 12, 3
LATELY = timedelta(days=1)
Severity = Incident.Severity


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxRow:
    incident: Incident
    wish: str

    @property
    def rank(self) -> tuple[Any, ...]:
        """What asks before what is in hand; the worst first, and of those the oldest."""
        one = self.incident
        return not one.asks_for_person, -one.severity, one.first_seen_at


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRow:
    approval: Approval

    @property
    def rank(self) -> tuple[Any, ...]:
        """A run waits for it, so it comes right after what is critical."""
        return False, 0.5 - Severity.CRITICAL, self.approval.asked_at


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbox:
    rows: tuple[InboxRow, ...]
    drills: tuple[InboxRow, ...]
    """What a rehearsal found: shown last, and never counted."""
    approvals: tuple[ApprovalRow, ...]
    by_watch: tuple[Incident, ...]
    """All that were read, for the cards of the watches."""
    unresolved: int
    needs_person: int
    """Open problems of the system that nobody has."""
    could_not_run: int
    """Problems of the configuration."""
    resolved_lately: int
    """Within a day: who was away must not miss what came and went."""

    @property
    def items(self) -> tuple[InboxRow | ApprovalRow, ...]:
        """Incidents and approvals together."""
        together: list[InboxRow | ApprovalRow] = [*self.rows, *self.approvals]
        return (*sorted(together, key=lambda row: row.rank), *self.drills)

    @property
    def not_shown(self) -> int:
        return self.unresolved - len(self.rows)

    @property
    def in_hand(self) -> int:
        """Somebody has it, a chain works on it, or it seems to be over."""
        return self.unresolved - self.needs_person - self.could_not_run


def load_inbox(approvals: Iterable[Approval] = (), glance: Glance | None = None) -> Inbox:
    """One query where somebody has had a glance already, with what was resolved lately."""
    seen = glance or load_glance(lately())
    real = Case(When(drill="", then=Value(0)), default=Value(1))
    in_all = Window(Count("pk"), partition_by=real)
    order = (real, "-severity", "first_seen_at", "pk")
    read = unresolved_incidents().annotate(in_all=in_all).order_by(*order)[:READ]
    found = [row_of(one) for one in read]
    rows = sorted((row for row in found if not row.incident.drill), key=lambda row: row.rank)
    drills = [row for row in found if row.incident.drill]
    return Inbox(
        rows=tuple(rows[:SHOWN]),
        drills=tuple(drills[:DRILLS_SHOWN]),
        approvals=tuple(ApprovalRow(approval=one) for one in approvals),
        by_watch=tuple(row.incident for row in rows),
        unresolved=_in_all(rows),
        needs_person=seen.attention.problems,
        could_not_run=seen.attention.could_not_run,
        resolved_lately=seen.resolved,
    )


def lately() -> datetime:
    """Since when what was resolved is told of."""
    return timezone.now() - LATELY


def row_of(incident: Incident) -> InboxRow:
    return InboxRow(incident=incident, wish=wish_of(incident))


def _in_all(rows: Iterable[InboxRow]) -> int:
    """How many there are of these, those that were not read included."""
    return next((int(getattr(row.incident, "in_all", 0)) for row in rows), 0)
