"""What was spent, read from the record: for budgets and for the pages that show them.

What runs reported is read from the sums that are kept by day; only runs without a figure, which are
few, are looked at one by one. So it takes as long for a million runs as for a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db.models import Count, DecimalField, F, Min, Q, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from sessions_app.models import Cycle, PeriodCost, Session, Watch
from sessions_app.models.period_cost import PeriodCostQuerySet
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
WEEK, THIRTY = "week", "thirty"


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What was reported, in whole days, as on the page of costs."""

    today: Decimal
    week: Decimal
    month: Decimal
    """The last 30 days."""
    without_figure: int
    """Ended runs of those days whose cost is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetsNow:
    """All that is limited in this installation, and what the month will come to."""

    costs: Costs
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
    """Those that hold for its runs, the narrowest first: two queries. A drill has only its own.

    A run that is left out has not ended, so it is in no sum.
    """
    limits = limits_of(cycle)
    if not limits:
        return ()
    day, month = _periods(timezone.now())
    of_watch, of_cycle = cycle.watch_id or 0, Q(cycle=cycle.pk)
    others = Session.objects.exclude(pk=without.pk if without else 0)
    looked_at = _spent_in(
        others.filter(of_cycle | _without_figure(min(day, month))),
        {
            Scope.CHAIN: of_cycle,
            Scope.WATCH_DAY: _guessed(day) & Q(cycle__watch=of_watch),
            Scope.DAY: _guessed(day),
            Scope.MONTH: _guessed(month),
        },
    )
    reported = _reported_in(
        min(day, month),
        {
            Scope.WATCH_DAY: _from(day) & Q(watch_number=of_watch),
            Scope.DAY: _from(day),
            Scope.MONTH: _from(month),
        },
    )
    spent = {scope: looked_at[scope].and_reported(reported.get(scope, NOTHING)) for scope in limits}
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
    """Two queries, and one more where no watches are given."""
    day, month = _periods(timezone.now())
    week, thirty = day - timedelta(days=6), day - timedelta(days=29)
    starts = {Scope.DAY: day, Scope.MONTH: month, WEEK: week, THIRTY: thirty}
    own, first, without_figure = _by_watch(starts)
    sums = {name: _together(spent[name] for spent in own.values()) for name in starts}
    given = Watch.objects.all() if watches is None else watches
    return BudgetsNow(
        costs=Costs(
            today=sums[Scope.DAY].reported,
            week=sums[WEEK].reported,
            month=sums[THIRTY].reported,
            without_figure=without_figure,
        ),
        day=_limited(Scope.DAY, settings.CLAUDEOPS_BUDGET_DAY, sums[Scope.DAY], day),
        month=_limited(Scope.MONTH, settings.CLAUDEOPS_BUDGET_MONTH, sums[Scope.MONTH], month),
        watches=_watches(given, {watch: spent[Scope.DAY] for watch, spent in own.items()}, day),
        forecast=forecast(
            sums[Scope.MONTH].total,
            sums[WEEK].total,
            first,
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


def _by_watch(
    starts: Mapping[str, datetime],
) -> tuple[dict[int, dict[str, Spent]], date | None, int]:
    """What each watch spent since each start, 0 for what has none; the record's first day; how many
    runs of the last 30 days have ended without a figure.

    Without any run lately there is nothing to forecast, so its being unknown then does no harm.
    """
    guessed, without_figure = _guessed_by_watch(starts)
    wanted = {name: _from(start) for name, start in starts.items()}
    kept: Any = _kept(min(starts.values())).order_by().values("watch_number")
    rows = list(kept.annotate(**_reported(wanted), first=Min(_first_day())))
    reported = {row["watch_number"]: row for row in rows}
    spent = {
        watch: {
            name: guessed.get(watch, {})
            .get(name, Spent())
            .and_reported(reported.get(watch, {}).get(str(name), NOTHING))
            for name in starts
        }
        for watch in {*guessed, *reported}
    }
    return spent, rows[0]["first"] if rows else None, without_figure


def _guessed_by_watch(starts: Mapping[str, datetime]) -> tuple[dict[int, dict[str, Spent]], int]:
    guesses = {name: _guessed(start) for name, start in starts.items()}
    ended = Count("pk", filter=guesses[THIRTY] & Q(finished_at__isnull=False))
    unpriced: Any = Session.objects.filter(_without_figure(min(starts.values()))).order_by()
    grouped = unpriced.values("cycle__watch")
    rows = list(grouped.annotate(**_all_expressions(guesses), ended=ended))
    by_watch = {row["cycle__watch"] or 0: _spent(row, starts) for row in rows}
    return by_watch, sum(row["ended"] for row in rows)


def _together(parts: Iterable[Spent]) -> Spent:
    known = list(parts)
    return Spent(
        total=sum((part.total for part in known), NOTHING),
        guessed=sum((part.guessed for part in known), NOTHING),
    )


def _without_figure(start: datetime) -> Q:
    """Runs that have not reported what they cost: those under way, and those that were cut off."""
    return Q(cost_usd=None, started_at__gte=start)


def _guessed(start: datetime) -> Q:
    return REAL & _without_figure(start)


def _from(start: datetime) -> Q:
    return Q(first_day__gte=start.date())


def _reported_in(earliest: datetime, wanted: Mapping[str, Q]) -> dict[str, Decimal]:
    found = _kept(earliest).aggregate(**_reported(wanted))
    return {name: found[str(name)] for name in wanted}


def _kept(earliest: datetime) -> PeriodCostQuerySet:
    return PeriodCost.objects.real().days_since(earliest.date())


def _reported(wanted: Mapping[str, Q]) -> dict[str, Sum]:
    return {
        str(name): Sum("cost_usd", filter=condition, default=NOTHING)
        for name, condition in wanted.items()
    }


def _first_day() -> Subquery:
    """Of the whole record, asked for beside the sums of a period."""
    days = PeriodCost.objects.real().filter(span=PeriodCost.Span.DAY).order_by("first_day")
    return Subquery(days.values("first_day")[:1])


def _periods(now: datetime) -> tuple[datetime, datetime]:
    """In the installation's time zone. What a clock that was set back left in the future counts."""
    zone = timezone.get_current_timezone()
    return start_of_day(now, zone), start_of_month(now, zone)


def _spent_in(sessions: SessionQuerySet, wanted: Mapping[str, Q]) -> dict[str, Spent]:
    return _spent(sessions.aggregate(**_all_expressions(wanted)), wanted)


def _spent(sums: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, Spent]:
    return {name: Spent(total=sums[str(name)], guessed=sums[f"{name}_guessed"]) for name in wanted}


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
