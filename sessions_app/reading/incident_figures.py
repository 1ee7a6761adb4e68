"""What incidents answer: what one cost, what a fixed one costs, and how long a repair takes.

A cost is what the runs of its cycles cost themselves. Two incidents may share a cycle, so sums over
many count each run once. Drills never count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Any

from django.db.models import Count, Min, QuerySet, Subquery, Sum, Value

from sessions_app.models import Cycle, Incident, IncidentEvent, Session

ResolvedBy, Step = Incident.ResolvedBy, IncidentEvent.Kind
LOOKED_AT = 300
"""Fixed incidents, for what one costs and how long a repair takes."""
Run = tuple[int, Decimal | None, datetime | None]
"""Of which cycle it is, what it cost, when it ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainCost:
    runs: int
    cost_usd: Decimal
    without_figure: int
    """Ended runs whose cost is not known; an estimate is never added."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentCost(ChainCost):
    chains: Mapping[int, ChainCost]
    """By the number of the cycle: what each round that dealt with it cost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentFigures:
    """Of the real incidents that were resolved in a period."""

    resolved: int
    fixed: int
    """By the agent, and verified."""
    cost_per_fix: Decimal | None
    time_to_repair: timedelta | None
    """The median of those that were fixed, from the first sight to the verification."""
    looked_at: int
    """Of how many fixed ones both are known: the latest."""


def cost_of(incident: Incident) -> IncidentCost:
    """One query."""
    begun = Session.objects.filter(cycle__incidents=incident, started_at__isnull=False)
    runs = list(begun.values_list("cycle_id", "cost_usd", "finished_at"))
    by_chain: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_chain[run[0]].append(run)
    chains = {cycle: ChainCost(**_figures(own)) for cycle, own in by_chain.items()}
    return IncidentCost(**_figures(runs), chains=chains)


def _figures(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "runs": len(runs),
        "cost_usd": sum((cost for _cycle, cost, _end in runs if cost is not None), Decimal(0)),
        "without_figure": sum(cost is None and end is not None for _cycle, cost, end in runs),
    }


def figures_since(start: datetime) -> IncidentFigures:
    """Two queries, however many there were."""
    ended = Incident.objects.filter(drill="", resolved_at__gte=start).order_by()
    fixed = ended.filter(resolved_as=ResolvedBy.AGENT).order_by("-resolved_at", "-pk")[:LOOKED_AT]
    latest = list(fixed.values_list("first_seen_at", "resolved_at"))
    seconds = [(until - first).total_seconds() for first, until in latest if until]
    grouped: Any = ended.values("resolved_as")
    kinds = list(grouped.annotate(count=Count("pk"), cost=Min(_cost_of(fixed))))
    counted = {kind["resolved_as"]: kind["count"] for kind in kinds}
    spent = kinds[0]["cost"] or Decimal(0) if kinds else Decimal(0)
    return IncidentFigures(
        resolved=sum(counted.values()),
        fixed=counted.get(ResolvedBy.AGENT, 0),
        cost_per_fix=spent / len(latest) if latest else None,
        time_to_repair=timedelta(seconds=median(seconds)) if seconds else None,
        looked_at=len(latest),
    )


def _cost_of(incidents: QuerySet[Incident]) -> Subquery:
    """Of all of them together, each run once, also where two share its cycle."""
    cycles = Incident.cycles.through.objects.filter(incident__in=incidents.values("pk"))
    runs: Any = Session.objects.filter(cycle__in=cycles.values("cycle")).order_by()
    together = runs.annotate(all=Value(1)).values("all").annotate(total=Sum("cost_usd"))
    return Subquery(together.values("total"))


def failed_remedies(events: Iterable[IncidentEvent]) -> tuple[str, ...]:
    """What was done and did not hold, newest last."""
    return tuple(event.text for event in events if event.kind == Step.DID_NOT_HOLD and event.text)


def remedies_that_failed(cycle: Cycle) -> list[str]:
    """Of the causes that a cycle works on, ever, for whoever is about to try the same again."""
    own = cycle.incidents.all()
    of_these = IncidentEvent.objects.filter(
        kind=Step.DID_NOT_HOLD,
        incident__scope__in=own.values("scope"),
        incident__cause__in=own.values("cause"),
    )
    return list(of_these.exclude(text="").order_by("pk").values_list("text", flat=True))
