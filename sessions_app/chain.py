"""The chain of a session: where it came from, what came of it, and what each tier cost.

All sessions of a chain belong to one cycle, so one query finds them all; parent links give the
order. Costs stay with the run that caused them and are only ever added up for display.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal

from sessions_app.models import Session


@dataclass(frozen=True, kw_only=True, slots=True)
class TierCost:
    tier: int
    cost_usd: Decimal
    runs: int
    share: Decimal
    """Part of the chain's total, from 0 to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    sessions: tuple[Session, ...]
    """Parents before their children."""

    @property
    def total_cost_usd(self) -> Decimal:
        return sum((session.cost_usd or Decimal(0) for session in self.sessions), Decimal(0))

    @property
    def cost_is_complete(self) -> bool:
        """False while a run has not reported, or when it never did."""
        return all(session.cost_usd is not None for session in self.sessions)

    @property
    def duration_ms(self) -> int:
        return sum(session.duration_ms or 0 for session in self.sessions)

    @property
    def total_tokens(self) -> int:
        return sum(session.total_tokens for session in self.sessions)

    @property
    def costs_by_tier(self) -> tuple[TierCost, ...]:
        costs: dict[int, Decimal] = defaultdict(Decimal)
        runs: dict[int, int] = defaultdict(int)
        for session in self.sessions:
            costs[session.tier] += session.cost_usd or Decimal(0)
            runs[session.tier] += 1
        total = self.total_cost_usd
        return tuple(
            TierCost(
                tier=tier,
                cost_usd=costs[tier],
                runs=runs[tier],
                share=costs[tier] / total if total else Decimal(0),
            )
            for tier in sorted(costs)
        )


def chain_of(session: Session) -> Chain:
    """The whole chain that a session is part of, in two directions and one query."""
    relatives = list(
        Session.objects.filter(cycle=session.cycle_id).select_related("cycle__watch").order_by("id")
    )
    by_id = {relative.pk: relative for relative in relatives}
    root = by_id[session.pk]
    while root.parent_session_id in by_id:
        root = by_id[root.parent_session_id]
    return Chain(sessions=tuple(_with_descendants(root, relatives)))


def _with_descendants(root: Session, relatives: list[Session]) -> list[Session]:
    children: dict[int | None, list[Session]] = defaultdict(list)
    for relative in relatives:
        children[relative.parent_session_id].append(relative)
    ordered, waiting = [], [root]
    while waiting:
        session = waiting.pop(0)
        ordered.append(session)
        waiting = children[session.pk] + waiting
    return ordered
