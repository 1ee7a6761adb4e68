"""The Overview: inbox, running sessions, watches, budgets and recent cycles, with a fixed number of
queries.

The page polls every few seconds; `overview_version` answers from short indexed reads, so that an
unchanged page costs little. Costs come from sums by day.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Any, cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import (
    Case,
    Count,
    F,
    Model,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
    Window,
)
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.agent.event_text import CurrentStep, current_step, last_steps
from escalation.supervisor import breaker
from escalation.web.approvals import waiting_approvals
from escalation.web.drills import scenarios_for
from escalation.web.health import root_warning
from escalation.web.responses import HtmxRequest, wants_fragment
from escalation.web.sandbox import current_sandbox
from escalation.web.sessions import last_worker, offered_actions
from escalation.worker import schedules
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.costs.spending import BudgetsNow, load_budgets
from sessions_app.history.chain import Chain
from sessions_app.history.claims import read_report
from sessions_app.history.commands import DeniedCommand, denied_commands
from sessions_app.history.cycles import (
    STOPPED,
    AsRows,
    PastCycle,
    cost_per_cycle,
    cycles_in,
    stop_of,
    with_cycles,
    with_unseen_services,
)
from sessions_app.history.header_status import HeaderStatus, load_header_status
from sessions_app.history.incidents import unresolved_incidents, wish_of
from sessions_app.history.session_actions import SessionAction, withheld_tier
from sessions_app.models import (
    Approval,
    Cycle,
    Incident,
    PeriodCost,
    Probe,
    RateLimit,
    Session,
    Watch,
)
from sessions_app.models.session import LONG_FIELDS
from sessions_app.text import one_line

# Inbox: incidents and approvals that wait for a person, worst first.

READ, SHOWN, DRILLS_SHOWN = 60, 12, 3
LATELY = timedelta(days=1)
Severity = Incident.Severity


LONGEST_EVIDENCE, LONGEST_ASKED = 200, 110


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """The tier that a person can allow once from the inbox."""

    session: Session
    action: SessionAction
    asked: str
    """What the tier would do, in the words of the tier that asked for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxRow:
    incident: Incident
    wish: str
    offer: Offer | None = None

    @property
    def evidence(self) -> str:
        """Returns what was seen, in one line; empty if the title says it."""
        seen = one_line(self.incident.detail, LONGEST_EVIDENCE)
        said = self.wish, self.incident.title
        return "" if any(seen and seen in text for text in said) else seen

    @property
    def acknowledges(self) -> bool:
        """Returns whether it can be acknowledged, for the first time or after a snooze."""
        return not self.incident.acknowledged_at or self.incident.has_woken

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts by: asks for a person, severity, age."""
        one = self.incident
        return not one.asks_for_person, -one.severity, one.first_seen_at


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRow:
    approval: Approval

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts right after critical incidents, since a session waits for it."""
        return False, 0.5 - Severity.CRITICAL, self.approval.asked_at


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbox:
    rows: tuple[InboxRow, ...]
    drills: tuple[InboxRow, ...]
    """Findings of drills: shown last and not counted."""
    approvals: tuple[ApprovalRow, ...]
    by_watch: tuple[Incident, ...]
    """All incidents read, for the cards of the watches."""
    unresolved: int
    needs_person: int
    """Open problems without an owner."""
    could_not_run: int
    """Problems of the configuration."""
    resolved_lately: int
    """Incidents resolved within a day."""

    @property
    def items(self) -> tuple[InboxRow | ApprovalRow, ...]:
        """Returns incidents and approvals together."""
        together: list[InboxRow | ApprovalRow] = [*self.rows, *self.approvals]
        return (*sorted(together, key=lambda row: row.rank), *self.drills)

    @property
    def not_shown(self) -> int:
        return self.unresolved - len(self.rows)

    @property
    def in_hand(self) -> int:
        """Counts incidents with an owner, a running cycle or a pending verification."""
        return self.unresolved - self.needs_person - self.could_not_run


def load_inbox(
    approvals: Iterable[Approval] = (), header_status: HeaderStatus | None = None
) -> Inbox:
    """Makes one query where the header status is given."""
    seen = header_status or load_header_status(lately())
    real = Case(When(drill="", then=Value(0)), default=Value(1))
    in_all = Window(Count("pk"), partition_by=real)
    order = (real, "-severity", "first_seen_at", "pk")
    read = unresolved_incidents().annotate(in_all=in_all).order_by(*order)[:READ]
    found = [row_of(one) for one in read]
    rows = sorted((row for row in found if not row.incident.drill), key=lambda row: row.rank)
    drills = [row for row in found if row.incident.drill]
    return Inbox(
        rows=tuple(rows[:SHOWN]),
        drills=tuple(drills[:DRILLS_SHOWN]),
        approvals=tuple(ApprovalRow(approval=one) for one in approvals),
        by_watch=tuple(row.incident for row in rows),
        unresolved=_in_all(rows),
        needs_person=seen.attention.problems,
        could_not_run=seen.attention.could_not_run,
        resolved_lately=seen.resolved,
    )


def with_offers(
    inbox: Inbox, sessions: Iterable[Session], rights: frozenset[Right]
) -> tuple[InboxRow, ...]:
    """Adds the tiers that were withheld in the last cycles, whose sessions are given."""
    runs: dict[int | None, list[Session]] = defaultdict(list)
    for run in sessions:
        runs[run.cycle_id].append(run)
    asking = {row.incident.last_cycle_id for row in inbox.rows if row.incident.asks_for_person}
    chains = {cycle: Chain(sessions=tuple(runs[cycle])) for cycle in asking if runs[cycle]}
    denied = denied_commands(_origins(chains.values())) if Right.APPROVE in rights else ()
    offers = {cycle: _offer(chain, rights, denied) for cycle, chain in chains.items()}
    return tuple(
        replace(row, offer=offers.get(row.incident.last_cycle_id))
        if row.incident.asks_for_person
        else row
        for row in inbox.rows
    )


def _origins(chains: Iterable[Chain]) -> Iterable[Session]:
    """Yields the sessions after which a tier was withheld."""
    for chain in chains:
        if withheld := withheld_tier(last_worker(chain), chain.sessions):
            yield withheld.origin


def _offer(chain: Chain, rights: frozenset[Right], denied: Iterable[DeniedCommand]) -> Offer | None:
    last = last_worker(chain)
    offered = offered_actions(last, chain, rights, denied).actions
    allow = next((one for one in offered if one.name == "allow_session"), None)
    report = read_report(last.report)
    asked = (report.escalation if report else "") or last.escalation_reason
    if allow is None:
        return None
    return Offer(session=last, action=allow, asked=one_line(asked, LONGEST_ASKED))


def lately() -> datetime:
    """Returns the time since which resolved incidents are counted."""
    return timezone.now() - LATELY


def row_of(incident: Incident) -> InboxRow:
    return InboxRow(incident=incident, wish=wish_of(incident))


def _in_all(rows: Iterable[InboxRow]) -> int:
    """Returns the number of all such incidents, including those not read."""
    return next((int(getattr(row.incident, "in_all", 0)) for row in rows), 0)


# Running and queued cycles, each with its current step and its cost.

NOTHING = Decimal(0)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningRow:
    cycle: Cycle
    session: Session | None
    """The open session; None before the first one."""
    step: CurrentStep | None
    """None if the session is not running."""
    cost: Decimal
    """Cost of the chain so far, with the API proxy's count for the running session."""

    @property
    def since(self) -> datetime:
        return (self.session and self.session.started_at) or self.cycle.created_at

    @property
    def is_stopping(self) -> bool:
        return self.session is not None and bool(self.session.stop_cause)


def with_steps(sessions: QuerySet[Session]) -> QuerySet[Session, Any]:
    """Adds the last step of each running session."""
    steps = last_steps()
    return sessions.defer(*LONG_FIELDS).annotate(
        step=Subquery(steps.values("pk")[:1]),
        step_payload=Subquery(steps.values("payload")[:1]),
        step_at=Subquery(steps.values("created_at")[:1]),
    )


def running_rows(active: Iterable[Cycle], chains: dict[int, Chain]) -> tuple[RunningRow, ...]:
    """Returns running cycles by start time, then queued ones."""
    rows = [_row(cycle, chains[cycle.pk].sessions) for cycle in active]
    return tuple(sorted(rows, key=lambda row: (row.step is None, row.since)))


def _row(cycle: Cycle, sessions: Sequence[Session]) -> RunningRow:
    under_way = next((one for one in reversed(sessions) if one.is_open), None)
    return RunningRow(
        cycle=cycle,
        session=under_way,
        step=_step(under_way),
        cost=sum((_cost(session) for session in sessions), NOTHING),
    )


def _step(session: Any) -> CurrentStep | None:
    if session is None or session.status != Session.Status.RUNNING:
        return None
    return current_step(session.step_payload, session.step_at or session.started_at)


def _cost(session: Session) -> Decimal:
    if session.cost_usd is not None:
        return session.cost_usd
    return session.spent_so_far_usd or session.estimated_cost_usd or NOTHING


# Cards of the watches, worst first: the last cycles, what is next, and open incidents.

LEAST_MARKS, MOST_MARKS = 8, 500
"""Marks in the history bar of one watch, and of all together: the page stays small."""
WELL = frozenset({*Cycle.GOOD_OUTCOMES, STOPPED})


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchCard:
    watch: Watch
    past_cycles: tuple[PastCycle, ...]
    """The last cycles, oldest first."""
    last: Cycle | None
    """The last finished cycle."""
    active: Cycle | None
    incidents: tuple[Incident, ...]
    """Unresolved incidents, worst first."""
    not_looked_at: tuple[str, ...] = ()
    """Services that the last healthy cycle did not mention."""
    failing_probes: tuple[str, ...] = ()
    cost_today: Decimal = NOTHING

    @property
    def is_well(self) -> bool:
        """Returns whether nothing is open and the last cycle went well."""
        last = self.last_cycle_of
        is_good = last is None or last.kind in WELL
        return is_good and not self.incidents and not self.failing_probes

    @property
    def worst(self) -> Incident | None:
        return self.incidents[0] if self.incidents else None

    @property
    def cost_per_cycle(self) -> Decimal | None:
        return cost_per_cycle(self.past_cycles)

    @property
    def last_cycle_of(self) -> PastCycle | None:
        return next((one for one in reversed(self.past_cycles) if one.is_over), None)

    @property
    def summary(self) -> str:
        """Returns the history bar in words, such as "38 healthy, 2 fixed"."""
        counted = Counter(
            STOPPED if one.kind == STOPPED else one.word for one in reversed(self.past_cycles)
        )
        return ", ".join(f"{number} {word}" for word, number in counted.items())

    @property
    def tried_again_at(self) -> datetime | None:
        """Returns the time at which the schedule resumes after a back-off."""
        until, schedule = self.watch.backed_off_until, self.watch.schedule
        if until is None or schedule is None or not self.watch.enabled:
            return None
        if self.watch.cron:
            return until  # the breaker chose one of the due times
        return first_due(until, schedule.next_run, self.watch.interval_minutes)

    @property
    def rank(self) -> tuple[int, bool, bool, str]:
        """Sorts by open incidents, the last outcome, enabled and name."""
        asking = max((int(one.severity) for one in self.incidents), default=0)
        last = self.last_cycle_of
        went_well = last is None or last.kind in WELL
        return -asking, went_well, not self.watch.enabled, self.watch.name.lower()


def first_due(after: datetime, next_run: datetime, interval_minutes: int) -> datetime:
    """Returns the first due time of an interval at or after a moment."""
    interval = timedelta(minutes=interval_minutes)
    return next_run + max(0, ceil((after - next_run) / interval)) * interval


def watches_with_cycles() -> QuerySet[Watch, Any]:
    """Adds the last cycles, services not looked at, failing probes and the cost of today."""
    failing = Probe.objects.filter(watch=OuterRef("pk"), state=Probe.State.DOWN)
    rows = AsRows(failing.order_by("name").values(probe_name=F("name")), ["probe_name"])
    own = PeriodCost.objects.real().days_since(timezone.localdate())
    today = own.filter(watch_number=OuterRef("pk")).order_by().values("watch_number")
    cost = today.annotate(sum=Sum("cost_usd")).values("sum")
    watches = with_cycles(Watch.objects.select_related("schedule"))
    return with_unseen_services(watches.annotate(failing_probes=rows, cost_today=Subquery(cost)))


def latest_ended(watches: Iterable[Any]) -> list[int]:
    """Returns the keys of the last finished cycles, whose reasons the cards show."""
    ended = ([one for one in cycles_in(watch.last_cycles) if one.is_over] for watch in watches)
    return [past[-1].cycle for past in ended if past]


def watch_cards(
    watches: Iterable[Any], cycles: Mapping[int, Cycle], unresolved: Iterable[Incident]
) -> tuple[WatchCard, ...]:
    incidents, watches = list(unresolved), list(watches)
    marks = max(LEAST_MARKS, MOST_MARKS // max(1, len(watches)))
    under_way = {cycle.watch_id: cycle for cycle in cycles.values() if cycle.is_active}
    cards = (
        _card(
            watch,
            cycles,
            under_way.get(watch.pk),
            tuple(one for one in incidents if one.watch_id == watch.pk and not one.drill),
            tuple(name for (name,) in watch.unseen_services or ()),
            marks,
        )
        for watch in watches
    )
    return tuple(sorted(cards, key=lambda card: card.rank))


def _card(
    watch: Any,
    cycles: Mapping[int, Cycle],
    active: Cycle | None,
    incidents: tuple[Incident, ...],
    not_looked_at: tuple[str, ...],
    marks: int,
) -> WatchCard:
    past = cycles_in(watch.last_cycles)[-marks:]
    ended = [one.cycle for one in past if one.is_over]
    return WatchCard(
        watch=watch,
        past_cycles=past,
        last=cycles.get(ended[-1]) if ended else None,
        active=active,
        incidents=incidents,
        not_looked_at=not_looked_at,
        failing_probes=tuple(name for (name,) in watch.failing_probes or ()),
        cost_today=watch.cost_today or NOTHING,
    )


RECENT_CYCLES = 10
ASKING_DRILL = "asks-before-acting"
"""Scenario with an approval for a newcomer to give."""
VERSION_CYCLE = ("id", "state", "outcome")
VERSION_SESSION = ("id", "status", "cost_usd", "spent_so_far_usd", "stop_cause", "step")
State = Cycle.State


@dataclass(frozen=True, kw_only=True, slots=True)
class OverviewCycleRow:
    cycle: Cycle
    chain: Chain

    @property
    def story(self) -> tuple[tuple[Session, str], ...]:
        """Returns the sessions of the chain, each with what its report says."""
        reports = ((one, read_report(one.report)) for one in self.chain.sessions)
        return tuple((one, report.summary if report else "") for one, report in reports)

    @property
    def stop(self) -> str:
        """Returns who stopped the cycle; empty if nobody did."""
        return stop_of(self.chain.sessions) if self.cycle.outcome else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    version: str
    header_status: HeaderStatus
    account: RateLimit
    active: tuple[RunningRow, ...]
    """Running and queued cycles."""
    active_drills: tuple[Cycle, ...]
    """Running and queued drills that are not among them."""
    inbox: Inbox
    budgets: BudgetsNow
    watches: tuple[WatchCard, ...]
    cycles: tuple[OverviewCycleRow, ...]

    @property
    def running(self) -> int:
        return sum(row.cycle.state == State.RUNNING for row in self.active)

    @property
    def waiting(self) -> int:
        return sum(row.cycle.state == State.QUEUED for row in self.active)

    @property
    def well(self) -> int:
        return sum(card.is_well for card in self.watches)

    @property
    def next_run(self) -> datetime | None:
        """Returns when the next watch is due; None if none is."""
        due = (card.watch.next_run for card in self.watches)
        return min((moment for moment in due if moment), default=None)

    @property
    def is_new(self) -> bool:
        """Returns whether no watch has run, so that the guide of the first start is offered."""
        return not any(card.past_cycles for card in self.watches)

    @property
    def first_drill(self) -> OverviewCycleRow | None:
        """Returns the drill that the guide of the first start tells as a story."""
        over = [row for row in self.cycles if row.cycle.drill and not row.cycle.is_active]
        longest = max(over, key=lambda row: len(row.chain.sessions), default=None)
        return longest if longest and longest.chain.sessions else None

    @property
    def asking_drill(self) -> Approval | None:
        """Returns the approval of a drill that waits for an answer."""
        waiting = (row.approval for row in self.inbox.approvals)
        return next((one for one in waiting if one.session.cycle.drill), None)

    @property
    def answered_drill(self) -> bool:
        """Returns whether a drill that asks before it acts was fixed."""
        return any(
            row.cycle.drill == ASKING_DRILL and row.cycle.outcome == Cycle.Outcome.FIXED
            for row in self.cycles
        )


def load_overview(rights: frozenset[Right] = frozenset()) -> Overview:
    account, header_status = RateLimit.current(), load_header_status(lately())
    watches = list(watches_with_cycles())
    approvals = waiting_approvals(drills=None)  # the first drill asks for one
    inbox = load_inbox(approvals, header_status)
    asking = [row.incident.last_cycle_id for row in inbox.rows if row.incident.asks_for_person]
    wanted = [*latest_ended(watches), *(cycle for cycle in asking if cycle)]
    cycles = {cycle.pk: cycle for cycle in _cycles(Q(pk__in=wanted))}
    shown, hidden_drills = _shown(cycles.values())
    if any(not cycle.drill for cycle in shown):
        real = tuple(row for row in inbox.approvals if not row.approval.session.cycle.drill)
        inbox = replace(inbox, drills=(), approvals=real)
    read = {*shown, *(cycles[cycle] for cycle in asking if cycle in cycles)}
    sessions = list(_sessions(_with_reports(with_steps(Session.objects.all())), read))
    own = {cycle.pk: _own(sessions, cycle) for cycle in read}
    chains = {cycle.pk: Chain(sessions=own[cycle.pk]) for cycle in shown}
    seen = [session for cycle in shown for session in own[cycle.pk]]
    known = (session for cycle in {*asking} for session in own.get(cycle or 0, ()))
    inbox = replace(inbox, rows=with_offers(inbox, known, rights))
    return Overview(
        version=_token(
            (account, header_status),
            [one.pk for one in approvals],
            watches,
            [*shown, *hidden_drills],
            seen,
        ),
        header_status=header_status,
        account=account,
        active=running_rows((one for one in shown if one.is_active), chains),
        active_drills=hidden_drills,
        inbox=inbox,
        budgets=load_budgets(watches),
        watches=watch_cards(watches, cycles, inbox.by_watch),
        cycles=tuple(
            OverviewCycleRow(cycle=one, chain=chains[one.pk]) for one in shown[:RECENT_CYCLES]
        ),
    )


def overview_version() -> str:
    """Returns the version token of the page without loading the page."""
    cycles, hidden_drills = _shown(_recent_or_active(Q()).only(*VERSION_CYCLE, "drill"))
    step = Subquery(last_steps().values("pk")[:1])
    sessions = _sessions(Session.objects.annotate(step=step), cycles)
    waiting = Approval.objects.filter(state=Approval.State.WAITING)
    return _token(
        (RateLimit.current(), load_header_status()),
        waiting.values_list("pk", flat=True),
        Watch.objects.all(),
        [*cycles, *hidden_drills],
        sessions.only(*(name for name in VERSION_SESSION if name != "step")),
    )


def _recent_or_active(besides: Q) -> QuerySet[Cycle]:
    """Returns active, recent and additional cycles, newest first.

    Filters by key, or SQLite would scan every cycle.
    """
    newest = Cycle.objects.order_by("-id").values("pk")
    recent = Q(pk__in=newest[:RECENT_CYCLES])
    earnest = Q(pk__in=newest.filter(drill="")[:RECENT_CYCLES])
    active = Q(pk__in=Cycle.objects.filter(state__in=Cycle.ACTIVE_STATES).values("pk"))
    return Cycle.objects.filter(recent | earnest | active | besides)


def _cycles(besides: Q) -> QuerySet[Cycle]:
    return _recent_or_active(besides).select_related("watch", "requested_by")


def _shown(cycles: Iterable[Cycle]) -> tuple[list[Cycle], tuple[Cycle, ...]]:
    """Returns the cycles of the page, and the active drills that are not among them.

    Drills are shown until the first earnest cycle. Cycles that only a card refers to are left out.
    """
    found = list(cycles)
    earnest = [one for one in found if not one.drill]
    kept = earnest or found
    shown = [one for place, one in enumerate(kept) if place < RECENT_CYCLES or one.is_active]
    drills = (one for one in found if one.drill and one.is_active)
    return shown, tuple(drills) if earnest else ()


def _sessions(sessions: QuerySet[Session, Any], cycles: Iterable[Cycle]) -> QuerySet[Session, Any]:
    return sessions.filter(cycle__in=[cycle.pk for cycle in cycles]).order_by("id")


def _with_reports(sessions: QuerySet[Session, Any]) -> QuerySet[Session, Any]:
    """Reads the reports, too: the inbox says what a tier asked for."""
    return sessions.defer(None).defer(*(name for name in LONG_FIELDS if name != "report"))


def _own(sessions: Iterable[Session], cycle: Cycle) -> tuple[Session, ...]:
    """Returns the sessions of a cycle, with the cycle set on each."""
    own = [session for session in sessions if session.cycle_id == cycle.pk]
    for session in own:
        session.cycle = cycle
    return tuple(own)


def _token(
    state: tuple[RateLimit, HeaderStatus],
    approvals: Iterable[int],
    watches: Iterable[Watch],
    cycles: Iterable[Cycle],
    sessions: Iterable[Session],
) -> str:
    """Includes the minute, because the page shows relative times."""
    columns = [field.attname for field in Watch._meta.fields]
    account, header_status = state
    facts = (
        (account.until, account.is_holding, account.windows),
        (header_status.pause, header_status.attention),
        sorted(approvals),
        timezone.localtime().strftime("%Y-%m-%d %H:%M"),
        header_status.last_step,
        _facts_of(cycles, VERSION_CYCLE),
        _facts_of(sessions, VERSION_SESSION),
        _facts_of(watches, columns),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _facts_of(rows: Iterable[Model], columns: Iterable[str]) -> list[tuple[Any, ...]]:
    facts = [tuple(getattr(row, column) for column in columns) for row in rows]
    return sorted(facts, key=lambda fact: fact[0])


NO_CHANGE = 204


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def overview(request: HtmxRequest) -> HttpResponse:
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == overview_version():
        return HttpResponse(status=NO_CHANGE)
    page = load_overview(rights_of(request.user))
    context = {
        "overview": page,
        "header_status": page.header_status,
        "scenarios": scenarios_for(request.user),
    }
    if not fragment:
        context |= {"sandbox_now": current_sandbox(), "root_warning": root_warning()}
    template = "_overview_update.html" if fragment else "overview.html"
    return render(request, f"web/{template}", context)


@acting(Right.PAUSE_ALL)
def pause_all(request: HttpRequest) -> HttpResponse:
    stopped = schedules.pause(
        request.POST.get("reason", "").strip() or "by hand",
        by=cast(User, request.user),
        stop_running=bool(request.POST.get("stop_running")),
    )
    messages.warning(
        request, f"Paused: no new tier starts. {stopped} running tiers were asked to stop."
    )
    return redirect("web:overview")


@acting(Right.PAUSE_ALL)
def unpause_all(request: HttpRequest) -> HttpResponse:
    count = schedules.unpause(by=cast(User, request.user))
    messages.success(request, schedules.RUNNING_AGAIN.format(count=count))
    return redirect("web:overview")


@acting(Right.PAUSE_ALL)
def lift_limit(request: HttpRequest) -> HttpResponse:
    count = breaker.lift(by=cast(User, request.user))
    messages.success(request, breaker.LIFTED.format(count=count))
    return redirect("web:overview")
