"""What a watch costs, from the sums that are kept by day: one query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.utils import timezone

from sessions_app.models import PeriodCost, Watch
from sessions_app.reading.budgets import Budget, Forecast, Scope, Spent, forecast

NOTHING = Decimal(0)
WEEK = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchCosts:
    today: Decimal
    week: Decimal
    month: Decimal
    without_figure: int
    """Ended runs of the month whose cost is not known."""
    forecast: Forecast
    budget: Budget | None
    """Of today; a run counts from its end on."""


def costs_of_watch(watch: Watch) -> WatchCosts:
    today = timezone.localdate()
    month, week = today.replace(day=1), today - timedelta(days=WEEK - 1)
    kept = PeriodCost.objects.real().days_since(min(month, week)).filter(watch_number=watch.pk)
    days = kept.amounts_by("first_day")
    spent, last_week = _sum(days, month), _sum(days, week)
    first = timezone.localdate(watch.created_at)
    return WatchCosts(
        today=_sum(days, today),
        week=last_week,
        month=spent,
        without_figure=sum(
            day["estimated"] + day["unknown"] for day in days if day["first_day"] >= month
        ),
        forecast=forecast(spent, last_week, first, today),
        budget=_budget(watch, days, today),
    )


def _sum(days: Iterable[dict[str, Any]], since: date, amount: str = "cost_usd") -> Decimal:
    return sum((day[amount] for day in days if day["first_day"] >= since), NOTHING)


def _budget(watch: Watch, days: Iterable[dict[str, Any]], today: date) -> Budget | None:
    limit = watch.budget_day_usd
    if limit is None:
        limit = settings.CLAUDEOPS_BUDGET_WATCH_DAY
    if limit is None:
        return None
    guessed = _sum(days, today, "estimated_usd")
    return Budget(
        scope=Scope.WATCH_DAY,
        limit=limit,
        spent=Spent(total=_sum(days, today) + guessed, guessed=guessed),
        name=f"watch:{watch.pk}",
        period=today,
        label="Today",
    )
