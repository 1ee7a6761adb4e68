"""All about one watch, as plain values: a fixed number of queries, however much has run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import DecimalField, OuterRef, Q, Subquery, Sum
from django.utils import timezone

from sessions_app.models import Approval, Change, Cycle, Incident, ServiceState, Session, Watch
from sessions_app.models.ask_rules import read_ask_rules
from sessions_app.models.service_marks import KEPT
from sessions_app.pages.inbox import InboxRow, row_of
from sessions_app.pages.strips import Strip, strip_beside, strip_of_rounds
from sessions_app.pages.watch_news import token_of, waiting_approvals_of
from sessions_app.reading.glance import Glance
from sessions_app.reading.watch_costs import WatchCosts, costs_of_watch

SERVICES_SHOWN = 60
OPEN_SHOWN, LATEST_SHOWN, CHANGES_SHOWN = 20, 5, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceRow:
    state: ServiceState
    strip: Strip


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    strip: Strip
    active: Cycle | None
    last: Cycle | None
    """The latest that has ended."""
    cost: Decimal | None
    """Of one, on average of those that are shown and have a figure."""
    counted: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchPage:
    version: str
    watch: Watch
    next_times: tuple[datetime, ...]
    rounds: Rounds
    services: tuple[ServiceRow, ...]
    has_more_services: bool
    unresolved: tuple[InboxRow, ...]
    latest: tuple[Incident, ...]
    """Incidents that are over."""
    changes: tuple[Change, ...]
    costs: WatchCosts
    approvals: tuple[Approval, ...]
    ask_rules: tuple[str, ...]

    @property
    def is_at_rest(self) -> bool:
        return self.rounds.active is None

    @property
    def sentence(self) -> str:
        """What is said aloud when it becomes something else."""
        if self.rounds.active:
            return f"{self.watch.name}: a round is under way."
        last = self.rounds.last
        return f"{self.watch.name}: {last.get_outcome_display()}." if last else ""


def load_watch(watch: Watch, glance: Glance) -> WatchPage:
    """Six queries besides the watch itself."""
    rounds = _last_rounds(watch)
    states = list(watch.services.order_by("place", "service")[: SERVICES_SHOWN + 1])
    incidents, approvals = _incidents(watch), _waiting(watch)
    return WatchPage(
        version=token_of(watch, glance, rounds, (approval.pk for approval in approvals)),
        watch=watch,
        next_times=watch.next_times(timezone.now()),
        rounds=_rounds(rounds),
        services=tuple(
            ServiceRow(state=state, strip=strip_beside(state, rounds))
            for state in states[:SERVICES_SHOWN]
        ),
        has_more_services=len(states) > SERVICES_SHOWN,
        unresolved=tuple(row_of(one) for one in incidents if one.is_unresolved),
        latest=tuple(one for one in incidents if not one.is_unresolved),
        changes=tuple(watch.changes.select_related("session").order_by("-id")[:CHANGES_SHOWN]),
        costs=costs_of_watch(watch),
        approvals=approvals,
        ask_rules=read_ask_rules(watch.ask),
    )


def _last_rounds(watch: Watch) -> Sequence[Cycle]:
    """The oldest of them first, each with what its runs cost."""
    runs = Session.objects.filter(cycle=OuterRef("pk")).order_by().values("cycle")
    cost = Subquery(
        runs.annotate(cost=Sum("cost_usd")).values("cost"),
        output_field=DecimalField(max_digits=20, decimal_places=10),
    )
    latest = watch.cycles.order_by("-id").defer("prompt", "instructions").annotate(cost=cost)
    return list(latest[:KEPT])[::-1]


def _rounds(rounds: Sequence[Cycle]) -> Rounds:
    ended = [cycle for cycle in rounds if not cycle.is_active]
    costs = [cycle.cost for cycle in ended if cycle.cost is not None]  # type: ignore[attr-defined]
    return Rounds(
        strip=strip_of_rounds(rounds),
        active=next((cycle for cycle in rounds if cycle.is_active), None),
        last=ended[-1] if ended else None,
        cost=sum(costs, Decimal(0)) / len(costs) if costs else None,
        counted=len(costs),
    )


def _incidents(watch: Watch) -> list[Incident]:
    """In one query: what is not over, the worst first, and the latest that are."""
    own = Incident.objects.filter(watch=watch)
    is_open = Q(state__in=Incident.UNRESOLVED_STATES)
    numbers = own.values("pk")
    shown = Q(pk__in=numbers.filter(is_open).order_by("-severity", "-pk")[:OPEN_SHOWN]) | Q(
        pk__in=numbers.exclude(is_open).order_by("-pk")[:LATEST_SHOWN]
    )
    found = Incident.objects.filter(shown).select_related("watch", "owner")
    return sorted(found, key=lambda one: (not one.is_unresolved, -one.severity, -one.pk))


def _waiting(watch: Watch) -> tuple[Approval, ...]:
    asked = waiting_approvals_of(watch).select_related("session__cycle__watch")
    return tuple(asked.order_by("expires_at", "id"))
