"""What the dashboard shows, as plain values: a fixed number of queries, however much has run.

The page asks every few seconds whether anything changed. `dashboard_version` answers that from
three short reads along indexes, so that an unchanged page costs almost nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil

from django.db.models import F, OuterRef, Prefetch, QuerySet, Subquery
from django.utils import timezone

from sessions_app.models import Cycle, Session, Watch
from sessions_app.models.querysets import LONG_FIELDS
from sessions_app.reading.chain import Chain

RECENT_CYCLES = 20
RECENT_SESSIONS = 5 * RECENT_CYCLES


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleRow:
    cycle: Cycle
    chain: Chain


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchRow:
    watch: Watch
    last: Cycle | None
    """The latest cycle that has ended."""
    active: Cycle | None

    @property
    def needs_person(self) -> bool:
        return self.last is not None and self.last.outcome not in Cycle.GOOD_OUTCOMES

    @property
    def tried_again_at(self) -> datetime | None:
        """When the schedule starts a watch again that is backed off."""
        until, schedule = self.watch.backed_off_until, self.watch.schedule
        if until is None or schedule is None or not self.watch.enabled:
            return None
        if self.watch.cron:
            return until  # the breaker chose one of the due times
        return first_due(until, schedule.next_run, self.watch.interval_minutes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    today: Decimal
    week: Decimal
    month: Decimal
    without_figure: int
    """Ended runs of the month whose cost is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dashboard:
    version: str
    running: int
    waiting: int
    costs: Costs
    watches: tuple[WatchRow, ...]
    cycles: tuple[CycleRow, ...]

    @property
    def needing_person(self) -> tuple[WatchRow, ...]:
        return tuple(row for row in self.watches if row.needs_person)


def first_due(after: datetime, next_run: datetime, interval_minutes: int) -> datetime:
    """The first of the times that an interval gives which is not before a moment."""
    interval = timedelta(minutes=interval_minutes)
    return next_run + max(0, ceil((after - next_run) / interval)) * interval


def load_dashboard() -> Dashboard:
    version = dashboard_version()  # before the data: a change in between is then seen next time
    states = [cycle.state for cycle in _active_cycles()]
    return Dashboard(
        version=version,
        running=states.count(Cycle.State.RUNNING),
        waiting=states.count(Cycle.State.QUEUED),
        costs=_costs(),
        watches=_watch_rows(),
        cycles=_cycle_rows(),
    )


def dashboard_version() -> str:
    """Changes when the page would; the minute is part of it because the page says "3 min ago"."""
    facts = (
        timezone.localtime().strftime("%Y-%m-%d %H:%M"),
        list(Cycle.objects.values_list("id", "state", "outcome")[:RECENT_CYCLES]),
        list(Session.objects.values_list("id", "status", "cost_usd")[:RECENT_SESSIONS]),
        list(Watch.objects.values_list(*(field.attname for field in Watch._meta.fields))),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _active_cycles() -> QuerySet[Cycle]:
    return Cycle.objects.filter(state__in=Cycle.ACTIVE_STATES).only("state")


def _costs() -> Costs:
    now = timezone.localtime()
    periods = _periods(now)
    real = Session.objects.real()
    return Costs(
        **real.costs_since(periods), without_figure=real.without_cost_since(periods["month"])
    )


def _periods(now: datetime) -> dict[str, datetime]:
    return {
        "today": now.replace(hour=0, minute=0, second=0, microsecond=0),
        "week": now - timedelta(days=7),
        "month": now - timedelta(days=30),
    }


def _watch_rows() -> tuple[WatchRow, ...]:
    own = Cycle.objects.filter(watch=OuterRef("pk")).order_by("-id").values("pk")
    watches = (
        Watch.objects.select_related("schedule")
        .annotate(
            last_cycle=Subquery(own.filter(state=Cycle.State.FINISHED)[:1]),
            active_cycle=Subquery(own.filter(state__in=Cycle.ACTIVE_STATES)[:1]),
        )
        .order_by(F("enabled").desc(), "name")
    )
    numbers = {(watch.last_cycle, watch.active_cycle) for watch in watches}
    cycles = Cycle.objects.in_bulk({pk for pair in numbers for pk in pair if pk})
    return tuple(
        WatchRow(
            watch=watch,
            last=cycles.get(watch.last_cycle),
            active=cycles.get(watch.active_cycle),
        )
        for watch in watches
    )


def _cycle_rows() -> tuple[CycleRow, ...]:
    sessions = Session.objects.defer(*LONG_FIELDS).order_by("id")
    cycles = Cycle.objects.select_related("watch", "requested_by").prefetch_related(
        Prefetch("sessions", queryset=sessions)
    )
    return tuple(
        CycleRow(cycle=cycle, chain=Chain(sessions=tuple(cycle.sessions.all())))
        for cycle in cycles[:RECENT_CYCLES]
    )
