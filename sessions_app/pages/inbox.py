"""The inbox: what wants something from a person, worst first. Two queries for any number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, Q, Value, When
from django.utils import timezone

from sessions_app.models import Approval, Incident
from sessions_app.reading.incident_text import wish_of
from sessions_app.reading.unresolved_incidents import asks_for_person, unresolved_incidents

READ, SHOWN, DRILLS_SHOWN = 60, 12, 3
LATELY = timedelta(days=1)
State, Kind, Severity = Incident.State, Incident.Kind, Incident.Severity


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


def load_inbox(approvals: Iterable[Approval] = ()) -> Inbox:
    now = timezone.now()
    real = Case(When(drill="", then=Value(0)), default=Value(1))
    order = (real, "-severity", "first_seen_at", "pk")
    found = [row_of(one) for one in unresolved_incidents().order_by(*order)[:READ]]
    rows = sorted((row for row in found if not row.incident.drill), key=lambda row: row.rank)
    drills = [row for row in found if row.incident.drill]
    return Inbox(
        rows=tuple(rows[:SHOWN]),
        drills=tuple(drills[:DRILLS_SHOWN]),
        approvals=tuple(ApprovalRow(approval=one) for one in approvals),
        by_watch=tuple(row.incident for row in rows),
        **_counts(now),
    )


def row_of(incident: Incident) -> InboxRow:
    return InboxRow(incident=incident, wish=wish_of(incident))


def _counts(now: datetime) -> dict[str, int]:
    is_unresolved = Q(state__in=Incident.UNRESOLVED_STATES)
    asks = asks_for_person(now)
    lately = Q(state=State.RESOLVED, resolved_at__gte=now - LATELY)
    return Incident.objects.filter(is_unresolved | lately, drill="").aggregate(
        unresolved=Count("pk", filter=is_unresolved),
        resolved_lately=Count("pk", filter=lately),
        needs_person=Count("pk", filter=asks & Q(kind=Kind.PROBLEM)),
        could_not_run=Count("pk", filter=asks & Q(kind=Kind.COULD_NOT_RUN)),
    )
