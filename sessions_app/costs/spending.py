"""Spent amounts for budgets and pages.

Reported costs are read from `PeriodCost` by days in UTC, which do not depend on the time zone.
Single sessions are read only if their cost is unknown, or if they started in the part of a UTC day
with which a local period begins. The time does not depend on the number of sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from operator import or_
from statistics import median
from typing import Any

from django.conf import settings
from django.db.models import Count, DecimalField, F, Max, Min, Q, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from sessions_app.costs.budgets import (
    Budget,
    Forecast,
    Scope,
    Spent,
    forecast,
    start_of_day,
    start_of_month,
)
from sessions_app.models import BudgetLimit, Cycle, PeriodCost, Session, Watch
from sessions_app.models.costs import PeriodCostQuerySet
from sessions_app.models.session import SessionQuerySet

NOTHING = Decimal(0)
REAL = Q(cycle__drill="")
WEEK, THIRTY = "week", "thirty"


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Reported costs of whole days, as on the costs page."""

    today: Decimal
    week: Decimal
    month: Decimal
    """The last 30 days."""
    without_figure: int
    """Ended sessions of the last 30 days without a reported cost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetsNow:
    """All budgets of the installation, and the forecast of the month."""

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
    """Return the budgets that apply to a cycle, the narrowest first.

    Makes two queries, and one more if local days do not start at midnight in UTC. A drill has only
    its own budget. `without` is a session that has not ended, so it is in no sum.
    """
    limits = limits_of(cycle)
    if not limits:
        return ()
    day, month = _periods(timezone.now())
    # A new cycle has no id; with `IS NULL`, SQLite would read every session.
    of_watch, of_cycle = cycle.watch_id or 0, Q(cycle=cycle.pk or 0)
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
    periods = {Scope.WATCH_DAY: day, Scope.DAY: day, Scope.MONTH: month}
    reported = _reported_in(periods, of_watch)
    spent = {scope: looked_at[scope].and_reported(reported.get(scope, NOTHING)) for scope in limits}
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


def budgets_of_session(session: Session) -> tuple[Budget, ...]:
    """Return the budgets that a session shares with others, without what it spends itself.

    A session that a person allowed once has its own limit instead of the chain's.
    """
    budgets = budgets_of_cycle(session.cycle, without=session)
    if not session.allowed_once:
        return budgets
    return tuple(budget for budget in budgets if budget.scope != Scope.CHAIN)


def budgets_of_watch(watch: Watch) -> tuple[Budget, ...]:
    return budgets_of_cycle(Cycle(watch=watch))


def limits_of(cycle: Cycle) -> dict[Scope, Decimal]:
    if cycle.drill:
        return {Scope.CHAIN: cycle.budget_usd} if cycle.budget_usd is not None else {}
    own = _own_limit(cycle.watch_id) if cycle.watch_id else None
    found = {
        Scope.CHAIN: chain_limit(cycle),
        Scope.WATCH_DAY: _least(
            settings.CLAUDEOPS_BUDGET_WATCH_DAY if own is None else own, _lowered_day(cycle)
        ),
        **limits_of_all(),
    }
    return {scope: limit for scope, limit in found.items() if limit is not None}


def limits_of_all(stored: Mapping[str, Decimal] | None = None) -> dict[Scope, Decimal | None]:
    """Return the budgets of all watches together: set by a person, or by the settings."""
    if stored is None:
        stored = dict(BudgetLimit.objects.values_list("name", "limit_usd"))
    return {
        Scope.DAY: stored.get(Scope.DAY, settings.CLAUDEOPS_BUDGET_DAY),
        Scope.MONTH: stored.get(Scope.MONTH, settings.CLAUDEOPS_BUDGET_MONTH),
    }


def chain_limit(cycle: Cycle) -> Decimal | None:
    """Return the budget of the chain, without a query."""
    return _least(cycle.budget_usd, None if cycle.drill else settings.CLAUDEOPS_BUDGET_CHAIN)


def _least(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


def _lowered_day(cycle: Cycle) -> Decimal | None:
    """Return the daily budget that the directory of the watch set for this cycle."""
    day = (cycle.lowered or {}).get("day_usd")
    return None if day is None else Decimal(day)


def _own_limit(watch: int) -> Decimal | None:
    """Read the current limit of a watch."""
    return Watch.objects.filter(pk=watch).values_list("budget_day_usd", flat=True).first()


def load_budgets(watches: Iterable[Watch] | None = None) -> BudgetsNow:
    """Return all budgets, with two to four queries."""
    day, month = _periods(timezone.now())
    week, thirty = day - timedelta(days=6), day - timedelta(days=29)
    starts = {Scope.DAY: day, Scope.MONTH: month, WEEK: week, THIRTY: thirty}
    own, first, without_figure, stored = _by_watch(starts)
    limits = limits_of_all(stored)
    sums = {name: _together(spent[name] for spent in own.values()) for name in starts}
    given = Watch.objects.all() if watches is None else watches
    return BudgetsNow(
        costs=Costs(
            today=sums[Scope.DAY].reported,
            week=sums[WEEK].reported,
            month=sums[THIRTY].reported,
            without_figure=without_figure,
        ),
        day=_limited(Scope.DAY, limits[Scope.DAY], sums[Scope.DAY], day),
        month=_limited(Scope.MONTH, limits[Scope.MONTH], sums[Scope.MONTH], month),
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
) -> tuple[dict[int, dict[str, Spent]], date | None, int, dict[str, Decimal] | None]:
    """Return the amounts of each watch since each start (0 without a watch), the day of the first
    session, the number of ended sessions of the last 30 days without a reported cost, and the
    stored limits.

    Without recent sessions there is nothing to forecast, so the day is None, and the limits were
    not read.
    """
    guessed, without_figure = _guessed_by_watch(starts)
    wanted = {name: _from(start) for name, start in starts.items()}
    kept: Any = _kept(min(starts.values())).order_by().values("watch_number")
    rows = list(kept.annotate(**_reported(wanted), first=Min(_first_day()), **_limits()))
    reported = {row["watch_number"]: row for row in rows}
    in_parts = _in_parts_by_watch(starts)
    spent = {
        watch: {
            name: guessed.get(watch, {})
            .get(name, Spent())
            .and_reported(reported.get(watch, {}).get(str(name), NOTHING))
            .and_reported(in_parts.get(watch, {}).get(str(name), NOTHING))
            for name in starts
        }
        for watch in {*guessed, *reported, *in_parts}
    }
    if not rows:
        return spent, None, without_figure, None
    limits = {name: rows[0][f"limit_{name}"] for name in BudgetLimit.Name.values}
    stored = {name: limit for name, limit in limits.items() if limit is not None}
    return spent, rows[0]["first"], without_figure, stored


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
    """Return the condition for sessions without a reported cost: running or interrupted."""
    return Q(cost_usd=None, started_at__gte=start)


def _guessed(start: datetime) -> Q:
    return REAL & _without_figure(start)


def _from(start: datetime) -> Q:
    """Return the condition for UTC days after a start."""
    return Q(first_day__gte=_first_whole_day(start).date())


def _first_whole_day(start: datetime) -> datetime:
    """Return the first midnight in UTC at or after a start."""
    midnight = datetime.combine(start.astimezone(UTC).date(), time(), UTC)
    return midnight if midnight == start else midnight + timedelta(days=1)


def _kept(earliest: datetime) -> PeriodCostQuerySet:
    return PeriodCost.objects.real().utc_days_since(_first_whole_day(earliest).date())


def _reported_in(periods: Mapping[Scope, datetime], watch: int) -> dict[Scope, Decimal]:
    """Return the reported costs since each start, of all watches, and of one for its day."""
    wanted = {
        scope: _from(start) & (Q(watch_number=watch) if scope == Scope.WATCH_DAY else Q())
        for scope, start in periods.items()
    }
    kept = _kept(min(periods.values())).aggregate(**_reported(wanted))
    parts = {
        scope: part & (Q(cycle__watch=watch) if scope == Scope.WATCH_DAY else Q())
        for scope, part in _parts(periods).items()
    }
    in_parts = _runs_in(parts.values()).aggregate(**_reported(parts)) if parts else {}
    return {scope: kept[str(scope)] + in_parts.get(str(scope), NOTHING) for scope in periods}


def _in_parts_by_watch(starts: Mapping[str, datetime]) -> dict[int, dict[str, Decimal]]:
    parts = _parts(starts)
    if not parts:
        return {}
    runs: Any = _runs_in(parts.values()).values("cycle__watch")
    return {row["cycle__watch"] or 0: row for row in runs.annotate(**_reported(parts))}


def _parts(starts: Mapping[Any, datetime]) -> dict[Any, Q]:
    """Return conditions for the part of a UTC day between each start and the next midnight."""
    return {
        name: Q(started_at__gte=start, started_at__lt=_first_whole_day(start))
        for name, start in starts.items()
        if _first_whole_day(start) != start
    }


def _runs_in(parts: Iterable[Q]) -> SessionQuerySet:
    """Select sessions with a reported cost in parts of days, by the index on `started_at`."""
    return Session.objects.filter(REAL, reduce(or_, parts), cost_usd__isnull=False).order_by()


def _reported(wanted: Mapping[Any, Q]) -> dict[str, Sum]:
    return {
        str(name): Sum("cost_usd", filter=condition, default=NOTHING)
        for name, condition in wanted.items()
    }


def _first_day() -> Subquery:
    """Return a subquery for the day of the first session."""
    days = PeriodCost.objects.real().filter(span=PeriodCost.Span.DAY).order_by("first_day")
    return Subquery(days.values("first_day")[:1])


def _limits() -> dict[str, Min]:
    """Return the stored limits as columns of a query, which saves one of their own."""
    return {
        f"limit_{name}": Min(
            Subquery(BudgetLimit.objects.filter(name=name).values("limit_usd")[:1])
        )
        for name in BudgetLimit.Name.values
    }


def _periods(now: datetime) -> tuple[datetime, datetime]:
    """Return the start of the local day and month."""
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


DAYS_OF_A_WEEK = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchCosts:
    today: Decimal
    week: Decimal
    month: Decimal
    without_figure: int
    """Ended sessions of the month without a reported cost."""
    forecast: Forecast
    budget: Budget | None
    """Budget of today, without running sessions."""


def costs_of_watch(watch: Watch) -> WatchCosts:
    today = timezone.localdate()
    month, week = today.replace(day=1), today - timedelta(days=DAYS_OF_A_WEEK - 1)
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


# `PeriodCost` does not know chains, so costs per cycle are computed from the latest cycles only.

LOOKED_AT = 300
DEAREST = 10

CYCLE_FIELDS = ("cycle_id", "cycle__drill", "cycle__watch_name", "cycle__created_at")
OUTCOME_FIELDS = ("cycle__state", "cycle__outcome", "watch_id", "watch__name")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainCost:
    cycle: Cycle
    cost_usd: Decimal | None
    """Sum of the reported costs; None if nothing was reported."""
    runs: int
    highest_tier: int
    without_figure: int


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitCosts:
    cycles: int
    """Number of cycles with a reported cost."""
    is_cut: bool
    """True if the period has more cycles."""
    average_usd: Decimal | None
    median_usd: Decimal | None
    dearest: tuple[ChainCost, ...]


def unit_costs(since: date | None, *, drills: bool) -> UnitCosts:
    """Return costs per cycle since a day, with one query for the latest cycles."""
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
