"""Page of one cycle: its chain of sessions, live while it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any

from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.agent.event_text import LiveRun, load_live_run
from escalation.supervisor.manual import Stopped
from escalation.supervisor.manual import stop_cycle as stop_chain
from escalation.web.changes import ChangeRow, changes_of_cycle
from escalation.web.live import (
    ALL,
    HEADING_FIELDS,
    LivePosition,
    LogEntry,
    log_entries,
    one_row_a_call,
    read_position,
)
from escalation.web.overview import InboxRow, row_of
from escalation.web.responses import HtmxRequest, wants_fragment
from escalation.web.resume_comparison import NOT_MEASURED, ContinuedSession
from escalation.web.sessions import (
    OfferedActions,
    SessionAnswer,
    answers_in,
    last_worker,
    offered_actions,
)
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.costs.check import CostCheck, check_costs
from sessions_app.costs.spending import chain_limit
from sessions_app.history.chain import Branch, Chain, chain_of_cycle
from sessions_app.history.claims import ShownReport, marked_report, read_report
from sessions_app.history.commands import DryCommand, is_dry, would_have_run
from sessions_app.models import Approval, Cycle, Session, SessionEvent
from sessions_app.text import duration, one_line, unless_said

INCIDENTS_SHOWN = 20
# Fields of a session whose change makes the page refresh.
WATCHED_FIELDS = (
    *("pk", "status", "branch_outcome", "escalation_reason", "continued_by", "stop_requested"),
    *("cost_usd", "estimated_cost_usd", "spent_so_far_usd"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainStep:
    step: ContinuedSession
    reason: str
    """Decision after the session; empty if the cycle's outcome repeats it."""
    error: str

    @property
    def session(self) -> Session:
        return self.step.session


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainLine:
    branch: Branch
    steps: tuple[ChainStep, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainReport:
    session: Session
    report: ShownReport
    escalation: str
    """Requested escalation; empty if the outcome repeats it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainPage:
    """Everything on the page that changes while the cycle runs."""

    cycle: Cycle
    chain: Chain
    approvals: tuple[Approval, ...]
    live: LiveRun | None
    version: str

    @property
    def is_active(self) -> bool:
        return self.cycle.is_active

    @property
    def queued(self) -> tuple[Session, ...]:
        waiting = (Session.Status.QUEUED, Session.Status.AWAITING_APPROVAL)
        return tuple(session for session in self.chain.sessions if session.status in waiting)

    @property
    def sentence(self) -> str:
        """Returns the cycle in one sentence, which is the title of the page."""
        cycle, sessions = self.cycle, self.chain.sessions
        highest = f"Tier {max(session.tier for session in sessions)}" if sessions else "no session"
        if not cycle.is_active:
            took = f" in {duration(self.chain.duration_ms)}" if sessions else ""
            cost = f" for {self.chain.cost_text}" if sessions else ""
            stopped = f"stopped by {cycle.stopped_by}" if cycle.stopped_by else ""
            return f"{cycle.subject}: {stopped or cycle.result_text}{took}{cost}"
        if self.approvals:
            return f"{cycle.subject}: waits for your approval of {self.approvals[0].subject}"
        runs = f"{highest} is at work" if self.live else "waits for a worker"
        return f"{cycle.subject}: {runs}"

    @property
    def is_stopping(self) -> bool:
        return self.live is not None and bool(self.live.session.stop_requested)

    @property
    def spent_usd(self) -> Decimal:
        """Returns the cost of all sessions, with the API proxy's count for the running one."""
        running = self.live.session.spent_so_far_usd if self.live else None
        return self.chain.total_cost_usd + (running or Decimal(0))

    @property
    def budget_usd(self) -> Decimal | None:
        return chain_limit(self.cycle)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainDetails:
    """Parts that need further queries, loaded only when the page is rendered."""

    lines: tuple[ChainLine, ...]
    checks: tuple[CostCheck, ...]
    incidents: tuple[InboxRow, ...]
    changes: tuple[ChangeRow, ...]
    report: ChainReport | None
    answers: tuple[SessionAnswer, ...]
    actions: OfferedActions | None
    dry_commands: tuple[DryCommand, ...] | None


def load_chain_page(cycle: Cycle) -> ChainPage:
    """Makes one query, and up to three more while the cycle runs."""
    chain = chain_of_cycle(cycle)
    running = [s for s in chain.sessions if s.status == Session.Status.RUNNING]
    live = load_live_run(running[-1]) if running else None
    approvals = _waiting_approvals(cycle, chain)
    return ChainPage(
        cycle=cycle,
        chain=chain,
        approvals=approvals,
        live=live,
        version=_version(cycle, chain, approvals, live),
    )


def load_chain_details(page: ChainPage, rights: frozenset[Right]) -> ChainDetails:
    """Makes two queries, and up to two more for a finished cycle."""
    chain, cycle = page.chain, page.cycle
    incidents = cycle.incidents.select_related("watch", "owner").order_by("pk")[:INCIDENTS_SHOWN]
    return ChainDetails(
        lines=tuple(_line(branch, cycle) for branch in chain.branches),
        checks=check_costs(chain),
        incidents=tuple(row_of(incident) for incident in incidents),
        changes=changes_of_cycle(cycle.pk),
        report=_report(page),
        answers=answers_in(chain.sessions),
        actions=offered_actions(last_worker(chain), chain, rights) if chain.sessions else None,
        dry_commands=_dry_commands(page) if Right.SEE_OUTPUT in rights else None,
    )


def _line(branch: Branch, cycle: Cycle) -> ChainLine:
    by_id = {session.pk: session for session in branch.sessions}
    if branch.came_from:
        by_id[branch.came_from.pk] = branch.came_from
    return ChainLine(
        branch=branch,
        steps=tuple(
            ChainStep(
                step=ContinuedSession(
                    session=session,
                    parent=by_id.get(session.parent_session_id or 0),
                    work=NOT_MEASURED,
                ),
                reason=unless_said(session.escalation_reason, cycle.outcome_reason),
                error=_error_of(session, cycle),
            )
            for session in branch.sessions
        ),
    )


def _error_of(session: Session, cycle: Cycle) -> str:
    """Returns the error of a session; a deliberate stop is none."""
    if session.stopped_by:
        return ""
    return unless_said(session.error, cycle.outcome_reason, session.escalation_reason)


def _marked(session: Session) -> ShownReport | None:
    """Returns the report with its claims checked against the record."""
    return marked_report(read_report(session.report), session.report, session.cycle_id)


def _report(page: ChainPage) -> ChainReport | None:
    """Returns the last report of the chain."""
    for session in sorted(page.chain.sessions, key=lambda session: -session.pk):
        report = _marked(session) if session.counts_as_evidence else None
        if report is not None:
            said = (page.cycle.outcome_reason, session.escalation_reason)
            asks = unless_said(report.escalation.partition("\n")[0], *said)
            return ChainReport(session=session, report=report, escalation=asks)
    return None


def _dry_commands(page: ChainPage) -> tuple[DryCommand, ...] | None:
    sessions = page.chain.sessions
    is_over = not page.is_active and any(map(is_dry, sessions))
    return would_have_run(sessions) if is_over else None


def _waiting_approvals(cycle: Cycle, chain: Chain) -> tuple[Approval, ...]:
    """Returns waiting approvals; an ended session has none."""
    if not any(session.is_open for session in chain.sessions):
        return ()
    waiting = Approval.objects.filter(session__cycle=cycle, state=Approval.State.WAITING)
    return tuple(waiting.select_related("session").order_by("pk"))


def _version(
    cycle: Cycle, chain: Chain, approvals: Iterable[Approval], live: LiveRun | None
) -> str:
    facts = (
        f"{cycle.state} {cycle.outcome} {cycle.outcome_reason}",
        [approval.pk for approval in approvals],
        [tuple(getattr(session, name) for name in WATCHED_FIELDS) for session in chain.sessions],
        (live.tokens, live.call and (live.call.words, live.call.since)) if live else None,
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


# Output of a whole chain in pages, tier by tier.

EVENTS_SHOWN = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class TierLog:
    session: Session
    entries: tuple[LogEntry, ...]
    is_begun_before: bool
    """True if its heading and first lines are on an earlier page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainLog:
    tiers: tuple[TierLog, ...]
    position: LivePosition
    """Position of a viewer who has seen this page of the log."""
    earlier: str
    """Position where the page before ends; empty on the first page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A call in the lane of its tier; places are percentages of the time that is shown."""

    words: str
    tone: str
    x: float
    width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    session: Session
    x: float
    width: float
    bars: tuple[Bar, ...]
    so_far_usd: Decimal
    """Cost of the chain up to the end of this session."""


LEAST_WIDTH = 0.6
"""Least width of a bar, in percent: a short call must be seen."""


def lanes_of(log: ChainLog) -> tuple[Lane, ...]:
    """Return one lane for each session with calls that ended, in order of time."""
    times = [entry.event.created_at for tier in log.tiers for entry in tier.entries]
    times += [
        entry.event.created_at + entry.took
        for tier in log.tiers
        for entry in tier.entries
        if entry.took
    ]
    if not times or max(times) == min(times):
        return ()
    begin, whole = min(times), (max(times) - min(times)).total_seconds()
    spent, lanes = Decimal(0), []
    for tier in log.tiers:
        spent += tier.session.cost_usd or Decimal(0)
        calls = [entry for entry in tier.entries if entry.took is not None]
        if not tier.entries or not calls:
            continue
        first, last = tier.entries[0].event.created_at, tier.entries[-1].event.created_at
        lanes.append(
            Lane(
                session=tier.session,
                x=_percent(first - begin, whole),
                width=max(_percent(last - first, whole), LEAST_WIDTH),
                bars=tuple(_bar(entry, begin, whole) for entry in calls),
                so_far_usd=spent,
            )
        )
    return tuple(lanes)


def _bar(entry: LogEntry, begin: datetime, whole: float) -> Bar:
    tones = [chip.tone for chip in entry.chips]
    tone = next((one for one in ("bad", "warn") if one in tones), "live")
    line = entry.lines[0]
    chips = ", ".join(chip.words for chip in entry.chips)
    return Bar(
        words=f"{line.title}: {one_line(line.text, LONGEST_WORDS)} ({chips})",
        tone=tone,
        x=min(_percent(entry.event.created_at - begin, whole), 100 - LEAST_WIDTH),
        width=max(_percent(entry.took or timedelta(), whole), LEAST_WIDTH),
    )


def _percent(part: timedelta, whole: float) -> float:
    return 100 * part.total_seconds() / whole


LONGEST_WORDS = 100


def load_chain_log(
    cycle: Cycle, sessions: Iterable[Session], before: LivePosition | None = None
) -> ChainLog:
    """Makes one query, and reads one event more than shown to know whether earlier ones exist."""
    known = {session.pk: session for session in sessions}
    found = SessionEvent.objects.filter(session__in=known)
    if before is not None and before.seen:
        session, number = max(before.seen.items())
        found = found.filter(Q(session__lt=session) | Q(session=session, sequence__lt=number))
    newest_first = list(found.order_by("-session_id", "-sequence")[: EVENTS_SHOWN + 1])
    shown = newest_first[:EVENTS_SHOWN][::-1]
    left = newest_first[EVENTS_SHOWN:]
    return ChainLog(
        tiers=_by_tier(shown, known, left[0].session_id if left else 0),
        position=_reached(shown, known),
        earlier=f"{shown[0].session_id}:{shown[0].sequence}" if left else "",
    )


def _by_tier(
    events: Iterable[SessionEvent], sessions: Mapping[int, Session], continues: int
) -> tuple[TierLog, ...]:
    grouped = groupby(log_entries(events, in_chain=True), key=lambda entry: entry.event.session_id)
    return tuple(
        TierLog(
            session=sessions[number],
            entries=tuple(one_row_a_call(entries)),
            is_begun_before=number == continues,
        )
        for number, entries in grouped
    )


def _reached(events: list[SessionEvent], sessions: Iterable[int]) -> LivePosition:
    """Returns the position at the last events; sessions before the first shown count as seen."""
    first = events[0].session_id if events else 0
    passed = {number: ALL for number in sessions if number < first}
    return LivePosition({**passed, **{event.session_id: event.sequence for event in events}})


NO_CHANGE = 204


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def cycle(request: HtmxRequest, pk: int) -> HttpResponse:
    page = load_chain_page(_cycle_or_404(pk))
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == page.version:
        return HttpResponse(status=NO_CHANGE)
    rights = rights_of(request.user)
    if fragment and request.GET.get("part") == "lanes":
        # Apart from the rest and less often: what the calls returned is redacted each time.
        log = load_chain_log(page.cycle, page.chain.sessions if Right.SEE_OUTPUT in rights else ())
        return render(request, "web/_cycle_lanes.html", {"page": page, "lanes": lanes_of(log)})
    context: dict[str, Any] = {
        "page": page,
        "cycle": page.cycle,
        "chain": page.chain,
        "details": load_chain_details(page, rights),
    }
    if Right.SEE_OUTPUT in rights and (not fragment or not page.is_active):
        log = load_chain_log(page.cycle, page.chain.sessions)
        context |= {"log": log, "lanes": lanes_of(log)}
    if fragment:
        return render(request, "web/_cycle_update.html", context)
    return render(request, "web/cycle_detail.html", context)


@needs(Right.SEE_OUTPUT)
@require_safe
@vary_on_headers("HX-Request")
def cycle_events(request: HtmxRequest, pk: int) -> HttpResponse:
    """Returns a page of earlier output."""
    found = _cycle_or_404(pk)
    sessions = Session.objects.filter(cycle=found).only(*HEADING_FIELDS)
    log = load_chain_log(found, sessions, read_position(request.GET.get("before")))
    template = "_chain_log.html" if wants_fragment(request) else "cycle_events.html"
    return render(request, f"web/{template}", {"cycle": found, "log": log})


def _cycle_or_404(pk: int) -> Cycle:
    return get_object_or_404(Cycle.objects.select_related("watch", "requested_by"), pk=pk)


SAID = {
    Stopped.STOPPING: "Cycle {cycle} is being stopped: nothing follows.",
    Stopped.CANCELLED: "Cycle {cycle} was cancelled: nothing more starts.",
    Stopped.NOTHING: "Cycle {cycle} has ended already: there was nothing to stop.",
}
UNCONFIRMED = "Tick the box to confirm that what runs is cut off."


@acting(Right.STOP)
def stop_cycle(request: HttpRequest, pk: int) -> HttpResponse:
    cycle = get_object_or_404(Cycle.objects.select_related("watch"), pk=pk)
    if _is_running(cycle) and not request.POST.get("confirm"):
        messages.warning(request, UNCONFIRMED)
        return redirect(cycle)
    stopped = stop_chain(cycle, by=request.user.get_username())
    messages.warning(request, SAID[stopped].format(cycle=cycle.pk))
    return redirect(cycle)


def _is_running(cycle: Cycle) -> bool:
    """Returns whether a session runs; a queued cycle is cancelled without confirmation."""
    return cycle.sessions.filter(status=Session.Status.RUNNING).exists()
