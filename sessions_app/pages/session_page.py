"""What the page of one session shows, as plain values: its chain, its report and its events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings

from sessions_app.models import Conversation, Cycle, Session, SessionEvent
from sessions_app.reading.chain import Branch, Chain, chain_of
from sessions_app.reading.continuity import Step, steps_of
from sessions_app.reading.cost_check import CostCheck, check_costs
from sessions_app.reading.event_text import EventLine, describe_event
from sessions_app.reading.plain_text import indented
from sessions_app.reading.report_text import Report, ReportItem, read_facts, read_report
from sessions_app.reading.session_actions import Action, actions_for, held_back

EVENTS_SHOWN = 500
DEEPEST_INDENT = 3
# When one of these changes in any run of the chain, the page is drawn again.
WATCHED_FIELDS = (
    *("pk", "status", "session_id", "escalation_reason", "continued_by", "continued_why"),
    *("cost_usd", "reported_cost_usd", "estimated_cost_usd", "compactions"),
)


@dataclass(frozen=True, slots=True)
class LogEntry:
    event: SessionEvent
    lines: tuple[EventLine, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """A stretch of a session's events, oldest first."""

    entries: tuple[LogEntry, ...]
    first: int
    last: int
    has_earlier: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """Everything on the page that changes when the run moves on."""

    session: Session
    chain: Chain
    report: Report | None
    version: str

    @property
    def cycle(self) -> Cycle:
        return self.session.cycle

    @property
    def may_change(self) -> bool:
        return self.session.is_open or self.cycle.is_active


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownBranch:
    """A line of the chain with what each of its steps carried over and repeated."""

    branch: Branch
    steps: tuple[Step, ...]

    @property
    def indent(self) -> int:
        return min(self.branch.depth, DEEPEST_INDENT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """What takes further queries, so it is read only when the page is really drawn."""

    branches: tuple[ShownBranch, ...]
    checks: tuple[CostCheck, ...]
    conversation: Conversation | None
    continuation_facts: tuple[ReportItem, ...]
    handoff: str
    actions: tuple[Action, ...]
    held_back: str
    context_limit: Decimal
    """How full a conversation may be, of the next model's window, to be resumed."""

    @property
    def context_low(self) -> Decimal:
        """From here on the gauge warns."""
        return self.context_limit * 3 / 4


def load_details(overview: Overview) -> Details:
    """Two queries: what the runs of the chain did, and the state of the conversation."""
    session, chain = overview.session, overview.chain
    steps = {step.session.pk: step for step in steps_of(chain.sessions)}
    return Details(
        branches=tuple(
            ShownBranch(branch=branch, steps=tuple(steps[s.pk] for s in branch.sessions))
            for branch in chain.branches
        ),
        checks=check_costs(chain),
        conversation=_conversation(session.session_id),
        continuation_facts=read_facts(session.continuation_facts),
        handoff=indented(session.handoff),
        actions=actions_for(session),
        held_back=held_back(session),
        context_limit=settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD,
    )


def _conversation(session_id: str) -> Conversation | None:
    return Conversation.objects.filter(session_id=session_id).first() if session_id else None


def load_overview(session: Session) -> Overview:
    chain = chain_of(session)
    return Overview(
        session=session,
        chain=chain,
        report=read_report(session.report),
        version=_version(session.cycle, chain),
    )


def _version(cycle: Cycle, chain: Chain) -> str:
    facts = (
        f"{cycle.state} {cycle.outcome} {cycle.outcome_reason}",
        [tuple(getattr(session, name) for name in WATCHED_FIELDS) for session in chain.sessions],
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def load_log(session_pk: int, before: int | None = None) -> Log:
    """The last events, or the last ones before a number. One more is read than shown, to know
    whether there are earlier ones without counting them all."""
    events = SessionEvent.objects.filter(session=session_pk).order_by("-sequence")
    if before is not None:
        events = events.filter(sequence__lt=before)
    newest_first = list(events[: EVENTS_SHOWN + 1])
    shown = newest_first[:EVENTS_SHOWN][::-1]
    return Log(
        entries=tuple(log_entries(shown)),
        first=shown[0].sequence if shown else 0,
        last=shown[-1].sequence if shown else -1,
        has_earlier=len(newest_first) > EVENTS_SHOWN,
    )


def log_entries(events: Iterable[SessionEvent]) -> list[LogEntry]:
    entries = [
        LogEntry(event, describe_event(event.source, event.kind, event.payload)) for event in events
    ]
    return [entry for entry in entries if entry.lines]
