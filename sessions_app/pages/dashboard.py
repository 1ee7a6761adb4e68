"""What the page Now shows, as plain values: a fixed number of queries, however much has run.

The page asks every few seconds whether anything changed. `dashboard_version` answers that from
some short reads along indexes, so that an unchanged page costs almost nothing. What it cost is read
from sums that are kept by day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Model, Q, QuerySet, Subquery
from django.utils import timezone

from sessions_app.models import (
    AccountClock,
    Approval,
    Cycle,
    Session,
    Watch,
)
from sessions_app.pages.approvals_page import waiting_approvals
from sessions_app.pages.inbox import Inbox, lately, load_inbox
from sessions_app.pages.running import RunningRow, running_rows, with_steps
from sessions_app.pages.watch_cards import (
    WatchCard,
    latest_ended,
    watch_cards,
    watches_with_rounds,
)
from sessions_app.reading.chain import Chain
from sessions_app.reading.current_step import last_steps
from sessions_app.reading.glance import Glance, load_glance
from sessions_app.reading.spending import BudgetsNow, load_budgets
from sessions_app.reading.stopped import stop_of

RECENT_CYCLES = 20
VERSION_CYCLE = ("id", "state", "outcome")
VERSION_SESSION = ("id", "status", "cost_usd", "spent_so_far_usd", "stop_cause", "step")
State = Cycle.State


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleRow:
    cycle: Cycle
    chain: Chain

    @property
    def stop(self) -> str:
        """Who stopped it, where somebody did."""
        return stop_of(self.chain.sessions) if self.cycle.outcome else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dashboard:
    version: str
    glance: Glance
    account: AccountClock
    active: tuple[RunningRow, ...]
    """What runs, and what waits in the queue."""
    inbox: Inbox
    budgets: BudgetsNow
    watches: tuple[WatchCard, ...]
    cycles: tuple[CycleRow, ...]

    @property
    def running(self) -> int:
        return sum(row.cycle.state == State.RUNNING for row in self.active)

    @property
    def waiting(self) -> int:
        return sum(row.cycle.state == State.QUEUED for row in self.active)

    @property
    def is_new(self) -> bool:
        """No watch has run yet, so the first start is offered."""
        return not any(card.rounds for card in self.watches)


def load_dashboard() -> Dashboard:
    account, glance = AccountClock.current(), load_glance(lately())
    watches = list(watches_with_rounds())
    cycles = {cycle.pk: cycle for cycle in _cycles(Q(pk__in=latest_ended(watches)))}
    shown = _shown(cycles.values())
    sessions = list(_sessions(with_steps(Session.objects.all()), shown))
    chains = {cycle.pk: Chain(sessions=_own(sessions, cycle)) for cycle in shown}
    approvals = waiting_approvals()
    inbox = load_inbox(approvals, glance)
    return Dashboard(
        version=_token((account, glance), [one.pk for one in approvals], watches, shown, sessions),
        glance=glance,
        account=account,
        active=running_rows((one for one in shown if one.is_active), chains),
        inbox=inbox,
        budgets=load_budgets(watches),
        watches=watch_cards(watches, cycles, inbox.by_watch),
        cycles=tuple(CycleRow(cycle=one, chain=chains[one.pk]) for one in shown[:RECENT_CYCLES]),
    )


def dashboard_version() -> str:
    """Changes when the page would: the token of a page, without loading one."""
    cycles = list(_recent_or_active(Q()).only(*VERSION_CYCLE))
    step = Subquery(last_steps().values("pk")[:1])
    sessions = _sessions(Session.objects.annotate(step=step), cycles)
    waiting = Approval.objects.filter(state=Approval.State.WAITING)
    return _token(
        (AccountClock.current(), load_glance()),
        waiting.values_list("pk", flat=True),
        Watch.objects.all(),
        cycles,
        sessions.only(*(name for name in VERSION_SESSION if name != "step")),
    )


def _recent_or_active(besides: Q) -> QuerySet[Cycle]:
    """Newest first: what is under way, the latest, and what else is asked for. All by number, or
    SQLite would look at every cycle there is."""
    recent = Q(pk__in=Cycle.objects.order_by("-id").values("pk")[:RECENT_CYCLES])
    active = Q(pk__in=Cycle.objects.filter(state__in=Cycle.ACTIVE_STATES).values("pk"))
    return Cycle.objects.filter(recent | active | besides)


def _cycles(besides: Q) -> QuerySet[Cycle]:
    return _recent_or_active(besides).select_related("watch", "requested_by")


def _shown(cycles: Iterable[Cycle]) -> list[Cycle]:
    """Without those that only a card speaks of."""
    return [one for place, one in enumerate(cycles) if place < RECENT_CYCLES or one.is_active]


def _sessions(sessions: QuerySet[Session, Any], cycles: Iterable[Cycle]) -> QuerySet[Session, Any]:
    return sessions.filter(cycle__in=[cycle.pk for cycle in cycles]).order_by("id")


def _own(sessions: Iterable[Session], cycle: Cycle) -> tuple[Session, ...]:
    """Its runs, each knowing its cycle."""
    own = [session for session in sessions if session.cycle_id == cycle.pk]
    for session in own:
        session.cycle = cycle
    return tuple(own)


def _token(
    standing: tuple[AccountClock, Glance],
    approvals: Iterable[int],
    watches: Iterable[Watch],
    cycles: Iterable[Cycle],
    sessions: Iterable[Session],
) -> str:
    """The minute is part of it because the page says "3 min ago"."""
    columns = [field.attname for field in Watch._meta.fields]
    account, glance = standing
    facts = (
        (account.until, account.is_holding, account.windows),
        (glance.pause, glance.attention),
        sorted(approvals),
        timezone.localtime().strftime("%Y-%m-%d %H:%M"),
        glance.last_step,
        _facts_of(cycles, VERSION_CYCLE),
        _facts_of(sessions, VERSION_SESSION),
        _facts_of(watches, columns),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _facts_of(rows: Iterable[Model], columns: Iterable[str]) -> list[tuple[Any, ...]]:
    facts = [tuple(getattr(row, column) for column in columns) for row in rows]
    return sorted(facts, key=lambda fact: fact[0])
