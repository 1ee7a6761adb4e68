"""What the page of one cycle shows, as plain values: its chain, what it wants, what it does now."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from sessions_app.access.roles import Right
from sessions_app.models import Approval, Cycle, Session
from sessions_app.pages.answers import Answer, answers_in
from sessions_app.pages.changes_page import ChangeRow, changes_of_cycle
from sessions_app.pages.inbox import InboxRow, row_of
from sessions_app.pages.offered_actions import OfferedActions, offered_actions
from sessions_app.reading.chain import Branch, Chain, chain_of_cycle
from sessions_app.reading.chain_record import marked_report
from sessions_app.reading.continuity import Step
from sessions_app.reading.cost_check import CostCheck, check_costs
from sessions_app.reading.dry_commands import DryCommand, is_dry, would_have_run
from sessions_app.reading.duplicate_work import NOT_MEASURED
from sessions_app.reading.live_now import LiveRun, load_live_run
from sessions_app.reading.report_text import Report, read_report
from sessions_app.reading.said_once import unless_said
from sessions_app.reading.spending import chain_limit

INCIDENTS_SHOWN = 20
DEEPEST_INDENT = 3
# When one of these changes in any run of the chain, the page is drawn again.
WATCHED_FIELDS = (
    *("pk", "status", "escalation_reason", "continued_by", "stop_requested"),
    *("cost_usd", "estimated_cost_usd", "spent_so_far_usd"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainStep:
    step: Step
    reason: str
    """What followed, and why; empty where the cycle's outcome says it already."""
    error: str

    @property
    def session(self) -> Session:
        return self.step.session


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainLine:
    branch: Branch
    steps: tuple[ChainStep, ...]

    @property
    def indent(self) -> int:
        return min(self.branch.depth, DEEPEST_INDENT)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainReport:
    session: Session
    report: Report
    escalation: str
    """What it asks for; empty where the outcome says it already."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainPage:
    """All that changes while the chain goes on."""

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
    def is_stopping(self) -> bool:
        return self.live is not None and bool(self.live.session.stop_requested)

    @property
    def spent_usd(self) -> Decimal:
        """By all runs, with what the running one has spent by the gateway's count."""
        running = self.live.session.spent_so_far_usd if self.live else None
        return self.chain.total_cost_usd + (running or Decimal(0))

    @property
    def budget_usd(self) -> Decimal | None:
        return chain_limit(self.cycle)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChainDetails:
    """What takes further queries, so it is read only when the page is really drawn."""

    lines: tuple[ChainLine, ...]
    checks: tuple[CostCheck, ...]
    incidents: tuple[InboxRow, ...]
    changes: tuple[ChangeRow, ...]
    report: ChainReport | None
    answers: tuple[Answer, ...]
    actions: OfferedActions | None
    dry_commands: tuple[DryCommand, ...] | None


def load_chain_page(cycle: Cycle) -> ChainPage:
    """One query, and while it is under way up to three more."""
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
    """Two queries; afterwards one or two more."""
    chain, cycle = page.chain, page.cycle
    incidents = cycle.incidents.select_related("watch", "owner").order_by("pk")[:INCIDENTS_SHOWN]
    return ChainDetails(
        lines=tuple(_line(branch, cycle) for branch in chain.branches),
        checks=check_costs(chain),
        incidents=tuple(row_of(incident) for incident in incidents),
        changes=changes_of_cycle(cycle.pk),
        report=_report(page),
        answers=answers_in(chain.sessions),
        actions=offered_actions(_last_worker(chain), rights) if chain.sessions else None,
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
                step=Step(
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
    """A deliberate stop is none."""
    if session.stopped_by:
        return ""
    return unless_said(session.error, cycle.outcome_reason, session.escalation_reason)


def _marked(session: Session) -> Report | None:
    """What a report claims stands beside what the record says of it."""
    return marked_report(read_report(session.report), session.report, session.cycle_id)


def _report(page: ChainPage) -> ChainReport | None:
    """The last one; those before it are on the pages of their sessions."""
    for session in sorted(page.chain.sessions, key=lambda session: -session.pk):
        report = None if session.is_plan else _marked(session)
        if report is not None:
            said = (page.cycle.outcome_reason, session.escalation_reason)
            asks = unless_said(report.escalation.partition("\n")[0], *said)
            return ChainReport(session=session, report=report, escalation=asks)
    return None


def _last_worker(chain: Chain) -> Session:
    """Where a person goes on from: the last run that was no question and no plan."""
    workers = [s for s in chain.sessions if not (s.is_question or s.is_plan)]
    return max(workers or chain.sessions, key=lambda session: session.pk)


def _dry_commands(page: ChainPage) -> tuple[DryCommand, ...] | None:
    sessions = page.chain.sessions
    is_over = not page.is_active and any(map(is_dry, sessions))
    return would_have_run(sessions) if is_over else None


def _waiting_approvals(cycle: Cycle, chain: Chain) -> tuple[Approval, ...]:
    """A run that has ended waits for nobody."""
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
