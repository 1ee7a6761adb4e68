"""What the page of costs shows, as plain values: a fixed number of queries for any period.

A cost is what the CLI reported. What is estimated or unknown is told beside it and never added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models.functions import TruncDate, TruncMonth
from django.utils import timezone

from sessions_app.models import Session
from sessions_app.models.cycle import removed_name
from sessions_app.models.querysets import SessionQuerySet
from sessions_app.reading.continuity import Comparison, compare_ways

PERIODS = {"7": "7 days", "30": "30 days", "90": "90 days", "all": "All time"}
DEFAULT_PERIOD = "30"


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

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            runs=self.runs + other.runs,
            cost_usd=self.cost_usd + other.cost_usd,
            estimated=self.estimated + other.estimated,
            estimated_usd=self.estimated_usd + other.estimated_usd,
            unknown=self.unknown + other.unknown,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CostRow:
    label: str
    amount: Amount
    share: Decimal
    """Part of all costs for a tier or a watch, of the highest bar for a day; 0 to 1."""
    tier: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CostsPage:
    period: str
    drills: bool
    total: Amount
    tiers: tuple[CostRow, ...]
    watches: tuple[CostRow, ...]
    days: tuple[CostRow, ...]
    """Oldest first, days without a run included; months when all time is looked at."""
    comparison: Comparison

    @property
    def period_label(self) -> str:
        return "all time" if self.period == "all" else f"the last {PERIODS[self.period]}"

    @property
    def by_month(self) -> bool:
        return self.period == "all"

    @property
    def days_with_runs(self) -> tuple[CostRow, ...]:
        return tuple(row for row in reversed(self.days) if row.amount.runs)


def load_costs(period: str, *, drills: bool) -> CostsPage:
    period = period if period in PERIODS else DEFAULT_PERIOD
    start = _start_of(period)
    sessions = Session.objects.drills() if drills else Session.objects.real()
    sessions = sessions.started_since(start)
    tiers = {tier: amount for (tier,), amount in _amounts(sessions, "tier").items()}
    total = sum(tiers.values(), Amount())
    return CostsPage(
        period=period,
        drills=drills,
        total=total,
        tiers=tuple(
            CostRow(
                label=f"Tier {tier}",
                amount=tiers[tier],
                share=_part(tiers[tier].cost_usd, total.cost_usd),
                tier=tier,
            )
            for tier in sorted(tiers)
        ),
        watches=_watches(sessions, total),
        days=_days(sessions, start),
        comparison=compare_ways(sessions),
    )


def _start_of(period: str) -> datetime | None:
    """Whole days, today included, so that the days add up to the total."""
    if period == "all":
        return None
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=int(period) - 1)


def _amounts(sessions: SessionQuerySet, *keys: str) -> dict[tuple[Any, ...], Amount]:
    return {
        tuple(row.pop(key) for key in keys): Amount(**row) for row in sessions.amounts_by(*keys)
    }


def _watches(sessions: SessionQuerySet, total: Amount) -> tuple[CostRow, ...]:
    """The dearest first."""
    amounts: dict[str, Amount] = defaultdict(Amount)
    keys = ("cycle__watch__name", "cycle__watch_name", "cycle__drill")
    for (watch, name, drill), amount in _amounts(sessions, *keys).items():
        amounts[drill or watch or removed_name(name)] += amount
    rows = [
        CostRow(label=name, amount=amount, share=_part(amount.cost_usd, total.cost_usd))
        for name, amount in amounts.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.amount.cost_usd, row.label)))


def _days(sessions: SessionQuerySet, start: datetime | None) -> tuple[CostRow, ...]:
    if start:
        found = _amounts(sessions.annotate(day=TruncDate("started_at")), "day")
        shown = _every_day(start.date())
    else:
        found = _amounts(sessions.annotate(day=TruncMonth("started_at")), "day")
        found = {(day.date(),): amount for (day,), amount in found.items()}
        shown = _every_month(min((day for (day,) in found), default=None))
    highest = max((amount.cost_usd for amount in found.values()), default=Decimal(0))
    return tuple(
        CostRow(
            label=f"{day:%Y-%m-%d}" if start else f"{day:%Y-%m}",
            amount=(amount := found.get((day,), Amount())),
            share=_part(amount.cost_usd, highest),
        )
        for day in shown
    )


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
