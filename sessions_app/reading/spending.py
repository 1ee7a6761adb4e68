"""What was spent, read from the record: for budgets and for the pages that show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db.models import DecimalField, F, Min, Q, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from sessions_app.models import Cycle, Session, Watch
from sessions_app.models.querysets import SessionQuerySet
from sessions_app.reading.budgets import (
    Budget,
    Forecast,
    Scope,
    Spent,
    forecast,
    start_of_day,
    start_of_month,
)

NOTHING = Decimal(0)
REAL = Q(cycle__drill="")


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetsNow:
    """All that is limited in this installation, and what the month will come to."""

    day: Budget | None
    month: Budget | None
    watches: tuple[Budget, ...]
    forecast: Forecast

    @property
    def limited(self) -> tuple[Budget, ...]:
        return tuple(filter(None, (self.day, self.month, *self.watches)))

    @property
    def spent(self) -> tuple[Budget, ...]:
        return tuple(budget for budget in self.limited if budget.is_spent)


def budgets_of_cycle(cycle: Cycle, *, without: Session | None = None) -> tuple[Budget, ...]:
    """Those that hold for its runs, the narrowest first: one query. A drill has only its own."""
    now = timezone.now()
    day, month = _periods(now)
    limits = limits_of(cycle)
    if not limits:
        return ()
    today = REAL & Q(started_at__gte=day)
    spent = _sums(
        Session.objects.filter(Q(cycle=cycle.pk) | Q(started_at__gte=min(day, month))).exclude(
            pk=without.pk if without else 0
        ),
        {
            Scope.CHAIN: Q(cycle=cycle.pk),
            Scope.WATCH_DAY: today & Q(cycle__watch=cycle.watch_id or 0),
            Scope.DAY: today,
            Scope.MONTH: REAL & Q(started_at__gte=month),
        },
    )
    periods = {Scope.WATCH_DAY: day, Scope.DAY: day, Scope.MONTH: month}
    names = {Scope.WATCH_DAY: f"watch:{cycle.watch_id}"}
    return tuple(
        Budget(
            scope=scope,
            limit=limit,
            spent=spent[scope],
            name=names.get(scope, scope.value),
            period=periods[scope].date() if scope in periods else None,
        )
        for scope, limit in limits.items()
    )


def budgets_of_watch(watch: Watch) -> tuple[Budget, ...]:
    """Before a cycle of it begins."""
    return budgets_of_cycle(Cycle(watch=watch))


def limits_of(cycle: Cycle) -> dict[Scope, Decimal]:
    if cycle.drill:
        return {Scope.CHAIN: cycle.budget_usd} if cycle.budget_usd is not None else {}
    own = _own_limit(cycle.watch_id) if cycle.watch_id else None
    found = {
        Scope.CHAIN: chain_limit(cycle),
        Scope.WATCH_DAY: settings.CLAUDEOPS_BUDGET_WATCH_DAY if own is None else own,
        Scope.DAY: settings.CLAUDEOPS_BUDGET_DAY,
        Scope.MONTH: settings.CLAUDEOPS_BUDGET_MONTH,
    }
    return {scope: limit for scope, limit in found.items() if limit is not None}


def chain_limit(cycle: Cycle) -> Decimal | None:
    """Of a chain alone: no query."""
    limits = [cycle.budget_usd, None if cycle.drill else settings.CLAUDEOPS_BUDGET_CHAIN]
    return min((limit for limit in limits if limit is not None), default=None)


def _own_limit(watch: int) -> Decimal | None:
    """As the watch says now: somebody may have changed it meanwhile."""
    return Watch.objects.filter(pk=watch).values_list("budget_day_usd", flat=True).first()


def load_budgets(watches: Iterable[Watch] | None = None) -> BudgetsNow:
    """One query, and one more where no watches are given."""
    now = timezone.now()
    day, month = _periods(now)
    week = day - timedelta(days=6)
    wanted = {
        Scope.DAY: Q(started_at__gte=day),
        Scope.MONTH: Q(started_at__gte=month),
        "week": Q(started_at__gte=week),
    }
    rows = _by_watch(wanted, since=min(month, week))
    own = {row["cycle__watch"]: _spent(row, wanted) for row in rows}
    sums = {name: _together(spent[name] for spent in own.values()) for name in wanted}
    # Without any run lately there is nothing to forecast, so its being unknown then does no harm.
    first = rows[0]["first"] if rows else None
    given = Watch.objects.all() if watches is None else watches
    return BudgetsNow(
        day=_limited(Scope.DAY, settings.CLAUDEOPS_BUDGET_DAY, sums[Scope.DAY], day),
        month=_limited(Scope.MONTH, settings.CLAUDEOPS_BUDGET_MONTH, sums[Scope.MONTH], month),
        watches=_watches(given, {watch: spent[Scope.DAY] for watch, spent in own.items()}, day),
        forecast=forecast(
            sums[Scope.MONTH].total,
            sums["week"].total,
            timezone.localtime(first).date() if first else None,
            day.date(),
        ),
    )


def _limited(scope: Scope, limit: Decimal | None, spent: Spent, start: datetime) -> Budget | None:
    if limit is None:
        return None
    label = {Scope.DAY: "Today, all watches", Scope.MONTH: "This month, all watches"}[scope]
    return Budget(
        scope=scope,
        limit=limit,
        spent=spent,
        name=scope.value,
        period=start.date(),
        label=label,
    )


def _watches(
    watches: Iterable[Watch], spent: Mapping[int, Spent], day: datetime
) -> tuple[Budget, ...]:
    general = settings.CLAUDEOPS_BUDGET_WATCH_DAY
    limits = [
        (watch, general if watch.budget_day_usd is None else watch.budget_day_usd)
        for watch in watches
    ]
    limited = [(watch, limit) for watch, limit in limits if limit is not None]
    return tuple(
        Budget(
            scope=Scope.WATCH_DAY,
            limit=limit,
            spent=spent.get(watch.pk, Spent()),
            name=f"watch:{watch.pk}",
            period=day.date(),
            label=f"Today, {watch.name}",
        )
        for watch, limit in limited
    )


def _by_watch(wanted: Mapping[str, Q], since: datetime) -> list[dict[str, Any]]:
    """Sums of each watch, and of what has none, and when the first run ever began."""
    lately: Any = Session.objects.filter(REAL, started_at__gte=since).order_by()
    grouped = lately.values("cycle__watch")
    return list(grouped.annotate(**_all_expressions(wanted), first=Min(_first_start())))


def _together(parts: Iterable[Spent]) -> Spent:
    known = list(parts)
    return Spent(
        total=sum((part.total for part in known), NOTHING),
        guessed=sum((part.guessed for part in known), NOTHING),
    )


def _periods(now: datetime) -> tuple[datetime, datetime]:
    """In the installation's time zone. What a clock that was set back left in the future counts."""
    zone = timezone.get_current_timezone()
    return start_of_day(now, zone), start_of_month(now, zone)


def _sums(sessions: SessionQuerySet, wanted: Mapping[str, Q]) -> dict[str, Spent]:
    return _spent(sessions.aggregate(**_all_expressions(wanted)), wanted)


def _spent(sums: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Spent]:
    return {name: Spent(total=sums[str(name)], guessed=sums[f"{name}_guessed"]) for name in wanted}


def _first_start() -> Subquery:
    """When the first run ever began."""
    begun = Session.objects.real().filter(started_at__isnull=False).order_by("started_at")
    return Subquery(begun.values("started_at")[:1])


def _all_expressions(wanted: Mapping[str, Q]) -> dict[str, Sum]:
    expressions: dict[str, Sum] = {}
    for name, condition in wanted.items():
        expressions |= _expressions(str(name), condition)
    return expressions


def _expressions(name: str, condition: Q) -> dict[str, Sum]:
    guess = Coalesce("estimated_cost_usd", "spent_so_far_usd")
    money = DecimalField(max_digits=20, decimal_places=10)
    return {
        name: Sum(Coalesce(F("cost_usd"), guess), filter=condition, default=NOTHING),
        f"{name}_guessed": Sum(
            guess, filter=condition & Q(cost_usd=None), default=NOTHING, output_field=money
        ),
    }
