"""What the page of costs shows, as plain values: read from sums that are kept by day and month, so
that it takes as long for a million runs as for a thousand.

A cost is what the CLI reported. What is estimated or unknown is told beside it and never added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from django.utils import timezone

from sessions_app.models import PeriodCost, Session, Watch
from sessions_app.models.cycle import removed_name
from sessions_app.models.period_cost import PeriodCostQuerySet
from sessions_app.reading.chart import Chart, Column, chart_of
from sessions_app.reading.continuity import Comparison, compare_ways
from sessions_app.reading.formatting import money
from sessions_app.reading.incident_figures import IncidentFigures, figures_since
from sessions_app.reading.unit_costs import UnitCosts, unit_costs

PERIODS = {"7": "7 days", "30": "30 days", "90": "90 days", "all": "All time"}
DEFAULT_PERIOD = "30"
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Amount:
    """What some runs cost together."""

    runs: int = 0
    cost_usd: Decimal = Decimal(0)
    estimated: int = 0
    """Runs without a figure of which the stream proves a part."""
    estimated_usd: Decimal = Decimal(0)
    unknown: int = 0
    """Runs that have ended and of whose cost nothing is known."""
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            runs=self.runs + other.runs,
            cost_usd=self.cost_usd + other.cost_usd,
            estimated=self.estimated + other.estimated,
            estimated_usd=self.estimated_usd + other.estimated_usd,
            unknown=self.unknown + other.unknown,
            tokens=self.tokens + other.tokens,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CostRow:
    label: str
    amount: Amount
    share: Decimal
    """Part of all costs for a tier or a watch, of the highest bar for a day; 0 to 1."""
    tier: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Sum:
    """What one tier's runs with one model cost on one day, or in one month."""

    day: date
    tier: int
    model: str
    amount: Amount


@dataclass(frozen=True, kw_only=True, slots=True)
class CostsPage:
    period: str
    drills: bool
    total: Amount
    tiers: tuple[CostRow, ...]
    models: tuple[CostRow, ...]
    watches: tuple[CostRow, ...]
    days: tuple[CostRow, ...]
    """Oldest first, days without a run included; months when all time is looked at."""
    chart: Chart
    units: UnitCosts
    incidents: IncidentFigures | None
    """Of the incidents that were resolved in the period; drills have none that count."""

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        return tuple((f"tier-{row.tier}", row.label) for row in self.tiers)

    @property
    def period_label(self) -> str:
        return "all time" if self.period == "all" else f"the last {PERIODS[self.period]}"

    @property
    def by_month(self) -> bool:
        return self.period == "all"

    @property
    def days_with_runs(self) -> tuple[CostRow, ...]:
        return tuple(row for row in reversed(self.days) if row.amount.runs)


def load_costs(period: str, *, drills: bool, watches: Iterable[Watch] | None = None) -> CostsPage:
    """The watches, where the caller has them already, are not asked for again."""
    period = known_period(period)
    first_day = first_day_of(period)
    sums = kept_costs(period, drills=drills)
    found = _sums(sums)
    total = sum((one.amount for one in found), Amount())
    return CostsPage(
        period=period,
        drills=drills,
        total=total,
        tiers=_tiers(found, total),
        models=_models(found, total),
        watches=_watches(sums, total, Watch.objects.all() if watches is None else watches),
        days=_days(found, first_day),
        chart=chart_of(_columns(found, first_day), money),
        units=unit_costs(first_day, drills=drills),
        incidents=None if drills else figures_since(_start_of(first_day)),
    )


def load_comparison(period: str, *, drills: bool) -> Comparison:
    """What it is worth to resume: a page of its own, since it reads the events of many runs."""
    sessions = Session.objects.drills() if drills else Session.objects.real()
    return compare_ways(sessions, since=first_day_of(known_period(period)))


def known_period(period: str) -> str:
    return period if period in PERIODS else DEFAULT_PERIOD


def kept_costs(period: str, *, drills: bool) -> PeriodCostQuerySet:
    """The sums of a period: by day, or by month for all time."""
    first_day = first_day_of(period)
    kept = PeriodCost.objects.drills() if drills else PeriodCost.objects.real()
    return kept.days_since(first_day) if first_day else kept.months()


def first_day_of(period: str) -> date | None:
    """Whole days, today included, so that the days add up to the total."""
    return None if period == "all" else timezone.localdate() - timedelta(days=int(period) - 1)


def _start_of(day: date | None) -> datetime:
    return timezone.make_aware(datetime.combine(day or date(1970, 1, 2), time.min))


def _sums(sums: PeriodCostQuerySet) -> list[Sum]:
    """One query, from which days, tiers and models are added up."""
    keys = ("first_day", "tier", "model")
    return [
        Sum(day=day, tier=tier, model=model, amount=amount)
        for (day, tier, model), amount in _amounts(sums, *keys).items()
    ]


def _amounts(sums: PeriodCostQuerySet, *keys: str) -> dict[tuple[Any, ...], Amount]:
    return {tuple(row.pop(key) for key in keys): Amount(**row) for row in sums.amounts_by(*keys)}


def _added(found: list[Sum], key: Callable[[Sum], Key]) -> dict[Key, Amount]:
    added: dict[Key, Amount] = defaultdict(Amount)
    for one in found:
        added[key(one)] += one.amount
    return added


def _tiers(found: list[Sum], total: Amount) -> tuple[CostRow, ...]:
    return tuple(
        CostRow(
            label=f"Tier {tier}",
            amount=amount,
            share=_part(amount.cost_usd, total.cost_usd),
            tier=tier,
        )
        for tier, amount in sorted(_added(found, lambda one: one.tier).items())
    )


def _models(found: list[Sum], total: Amount) -> tuple[CostRow, ...]:
    return _dearest_first(_added(found, lambda one: one.model), total)


def _dearest_first(amounts: dict[str, Amount], total: Amount) -> tuple[CostRow, ...]:
    rows = [
        CostRow(label=name, amount=amount, share=_part(amount.cost_usd, total.cost_usd))
        for name, amount in amounts.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.amount.cost_usd, row.label)))


def _watches(
    sums: PeriodCostQuerySet, total: Amount, watches: Iterable[Watch]
) -> tuple[CostRow, ...]:
    names = {watch.pk: watch.name for watch in watches}
    amounts: dict[str, Amount] = defaultdict(Amount)
    keys = ("watch_number", "watch_name", "drill")
    for (watch, name, drill), amount in _amounts(sums, *keys).items():
        amounts[drill or names.get(watch) or removed_name(name)] += amount
    return _dearest_first(amounts, total)


def _days(found: list[Sum], first_day: date | None) -> tuple[CostRow, ...]:
    by_day = _added(found, lambda one: one.day)
    highest = max((amount.cost_usd for amount in by_day.values()), default=Decimal(0))
    return tuple(
        CostRow(
            label=_label(day, first_day),
            amount=(amount := by_day.get(day, Amount())),
            share=_part(amount.cost_usd, highest),
        )
        for day in _shown_days(found, first_day)
    )


def _columns(found: list[Sum], first_day: date | None) -> list[Column]:
    """What each tier cost on each day, one on top of the other."""
    amounts = _added(found, lambda one: (one.day, one.tier))
    tiers = sorted({one.tier for one in found})
    return [
        Column(
            label=_label(day, first_day),
            short=f"{day:%b} {day.day}" if first_day else f"{day:%Y-%m}",
            parts=tuple(
                (f"tier-{tier}", amounts.get((day, tier), Amount()).cost_usd) for tier in tiers
            ),
        )
        for day in _shown_days(found, first_day)
    ]


def _label(day: date, first_day: date | None) -> str:
    return f"{day:%Y-%m-%d}" if first_day else f"{day:%Y-%m}"


def _shown_days(found: list[Sum], first_day: date | None) -> list[date]:
    if first_day:
        return list(_every_day(first_day))
    return list(_every_month(min((one.day for one in found), default=None)))


def _every_day(first: date) -> Iterator[date]:
    length = (timezone.localdate() - first).days + 1
    yield from (first + timedelta(days=number) for number in range(length))


def _every_month(first: date | None) -> Iterator[date]:
    month = first
    while month and month <= timezone.localdate():
        yield month
        month = (month + timedelta(days=32)).replace(day=1)


def _part(cost: Decimal, whole: Decimal) -> Decimal:
    return cost / whole if whole else Decimal(0)
