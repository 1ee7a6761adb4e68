"""What the runs of a list cost together, by tier: it follows the filters and the search."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from sessions_app.models import Session

MOST_ADDED = 2_000
"""Of the newest that match: a sum over a whole table would take as long as the table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TierCost:
    tier: int
    runs: int
    cost_usd: Decimal
    without_figure: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TierCosts:
    tiers: tuple[TierCost, ...]

    @property
    def runs(self) -> int:
        return sum(tier.runs for tier in self.tiers)

    @property
    def total(self) -> Decimal:
        return sum((tier.cost_usd for tier in self.tiers), Decimal(0))

    @property
    def is_cut(self) -> bool:
        return self.runs >= MOST_ADDED


def costs_by_tier(listed: QuerySet[Session]) -> TierCosts:
    """One query."""
    newest = listed.order_by("-pk").values("pk")[:MOST_ADDED]
    added: Any = Session.objects.filter(pk__in=newest).order_by("tier").values("tier")
    rows = added.annotate(
        runs=Count("pk"),
        spent=Sum("cost_usd", default=Decimal(0)),
        without=Count("pk", filter=Q(cost_usd=None, finished_at__isnull=False)),
    )
    return TierCosts(
        tiers=tuple(
            TierCost(
                tier=row["tier"],
                runs=row["runs"],
                cost_usd=row["spent"],
                without_figure=row["without"],
            )
            for row in rows
        )
    )
