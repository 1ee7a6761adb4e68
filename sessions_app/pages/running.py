"""What runs at this moment, as plain values: each cycle under way with its step and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import QuerySet, Subquery

from sessions_app.models import Cycle, Session
from sessions_app.models.querysets import LONG_FIELDS
from sessions_app.reading.chain import Chain
from sessions_app.reading.current_step import CurrentStep, current_step, last_steps

NOTHING = Decimal(0)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningRow:
    cycle: Cycle
    session: Session | None
    """The run that is under way or awaited; None before the first."""
    step: CurrentStep | None
    """None while it does not run."""
    cost: Decimal
    """Of the chain so far, with what the gateway counted of the run itself."""

    @property
    def since(self) -> datetime:
        return (self.session and self.session.started_at) or self.cycle.created_at

    @property
    def is_stopping(self) -> bool:
        return self.session is not None and bool(self.session.stop_cause)


def with_steps(sessions: QuerySet[Session]) -> QuerySet[Session, Any]:
    """Each with the last thing that it said, while it runs."""
    steps = last_steps()
    return sessions.defer(*LONG_FIELDS).annotate(
        step=Subquery(steps.values("pk")[:1]),
        step_payload=Subquery(steps.values("payload")[:1]),
        step_at=Subquery(steps.values("created_at")[:1]),
    )


def running_rows(active: Iterable[Cycle], chains: dict[int, Chain]) -> tuple[RunningRow, ...]:
    """What has begun first, then what waits in the queue."""
    rows = [_row(cycle, chains[cycle.pk].sessions) for cycle in active]
    return tuple(sorted(rows, key=lambda row: (row.step is None, row.since)))


def _row(cycle: Cycle, sessions: Sequence[Session]) -> RunningRow:
    under_way = next((one for one in reversed(sessions) if one.is_open), None)
    return RunningRow(
        cycle=cycle,
        session=under_way,
        step=_step(under_way),
        cost=sum((_cost(session) for session in sessions), NOTHING),
    )


def _step(session: Any) -> CurrentStep | None:
    if session is None or session.status != Session.Status.RUNNING:
        return None
    return current_step(session.step_payload, session.step_at or session.started_at)


def _cost(session: Session) -> Decimal:
    if session.cost_usd is not None:
        return session.cost_usd
    return session.spent_so_far_usd or session.estimated_cost_usd or NOTHING
