"""What one cycle costs and which chains cost most, read from a bounded stretch of the record.

The sums by day do not know chains. So the latest cycles are looked at, never all: a page says how
many, and takes as long for a million runs as for a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from statistics import median
from typing import Any

from django.db.models import Count, F, Max, Q, Sum
from django.utils import timezone

from sessions_app.models import Cycle, Session, Watch

LOOKED_AT = 300
DEAREST = 10
NOTHING = Decimal(0)
CYCLE_FIELDS = ("cycle_id", "cycle__drill", "cycle__watch_name", "cycle__created_at")
OUTCOME_FIELDS = ("cycle__state", "cycle__outcome", "watch_id", "watch__name")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainCost:
    cycle: Cycle
    cost_usd: Decimal | None
    """What the CLI reported for its runs; None where it reported nothing."""
    runs: int
    highest_tier: int
    without_figure: int


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitCosts:
    cycles: int
    """Those with a figure."""
    is_cut: bool
    """There were more in the period than are looked at."""
    average_usd: Decimal | None
    median_usd: Decimal | None
    dearest: tuple[ChainCost, ...]


def unit_costs(since: date | None, *, drills: bool) -> UnitCosts:
    """One query: the latest cycles with their runs. The period is looked at afterwards."""
    latest = [_chain_cost(row) for row in _latest_cycles()]
    in_period = [chain for chain in latest if since is None or _is_since(chain, since)]
    wanted = [chain for chain in in_period if bool(chain.cycle.drill) == drills]
    figures = [chain.cost_usd for chain in wanted if chain.cost_usd is not None]
    ranked = sorted(wanted, key=lambda chain: chain.cost_usd or NOTHING, reverse=True)
    return UnitCosts(
        cycles=len(figures),
        is_cut=len(latest) == LOOKED_AT == len(in_period),
        average_usd=sum(figures, NOTHING) / len(figures) if figures else None,
        median_usd=median(figures) if figures else None,
        dearest=tuple(chain for chain in ranked[:DEAREST] if chain.cost_usd),
    )


def _latest_cycles() -> list[dict[str, Any]]:
    newest = Cycle.objects.order_by("-pk").values("pk")[:LOOKED_AT]
    runs: Any = Session.objects.filter(cycle__in=newest, started_at__isnull=False)
    rows = runs.order_by().values(*CYCLE_FIELDS, *OUTCOME_FIELDS)
    return list(
        rows.annotate(
            spent=Sum("cost_usd"),
            runs=Count("pk"),
            highest=Max(F("tier")),
            without=Count("pk", filter=Q(cost_usd=None, finished_at__isnull=False)),
        )
    )


def _chain_cost(row: dict[str, Any]) -> ChainCost:
    watch = Watch(pk=row["watch_id"], name=row["watch__name"]) if row["watch_id"] else None
    return ChainCost(
        cycle=Cycle(
            pk=row["cycle_id"],
            drill=row["cycle__drill"],
            watch=watch,
            watch_name=row["cycle__watch_name"],
            state=row["cycle__state"],
            outcome=row["cycle__outcome"],
            created_at=row["cycle__created_at"],
        ),
        cost_usd=row["spent"],
        runs=row["runs"],
        highest_tier=row["highest"],
        without_figure=row["without"],
    )


def _is_since(chain: ChainCost, day: date) -> bool:
    return timezone.localdate(chain.cycle.created_at) >= day
