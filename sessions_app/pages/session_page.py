"""What the page of one session shows, as plain values: how it came about, and its events."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings
from django.utils import timezone

from sessions_app.access.roles import Right
from sessions_app.models import Approval, Conversation, Cycle, Incident, Session, SessionEvent
from sessions_app.pages.answers import Answer, answer_of
from sessions_app.pages.log_entries import LogEntry, log_entries
from sessions_app.pages.offered_actions import OfferedActions, offered_actions
from sessions_app.reading.chain import Chain, chain_of
from sessions_app.reading.chain_record import marked_report
from sessions_app.reading.continuity import Step, steps_of
from sessions_app.reading.dry_commands import DryCommand, is_dry, would_have_run
from sessions_app.reading.plain_text import indented
from sessions_app.reading.receipt import Receipt, receipt_of
from sessions_app.reading.report_text import Report, ReportItem, read_facts, read_report
from sessions_app.reading.resumable import Resumable, ResumeLimits, resumable

EVENTS_SHOWN = 500
INCIDENTS_SHOWN = 20
# When one of these changes in any run of the chain, the page is drawn again.
WATCHED_FIELDS = (
    *("pk", "status", "session_id", "escalation_reason", "continued_by", "continued_why"),
    *("cost_usd", "reported_cost_usd", "estimated_cost_usd", "compactions"),
)


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
    approvals: tuple[Approval, ...]
    """What waits for a person in this run."""
    version: str

    @property
    def cycle(self) -> Cycle:
        return self.session.cycle

    @property
    def may_change(self) -> bool:
        return self.session.is_open or self.cycle.is_active


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """What takes further queries, so it is read only when the page is really drawn."""

    step: Step
    """What this run carried over and repeated."""
    receipt: Receipt | None
    """None for a run that began the chain."""
    resumable: Resumable
    answer: Answer | None
    conversation: Conversation | None
    continuation_facts: tuple[ReportItem, ...]
    handoff: str
    actions: OfferedActions
    incidents: tuple[Incident, ...]
    """What its cycle had to do with."""
    dry_commands: tuple[DryCommand, ...] | None
    """What it would have run; None where it was no dry run, or is not to be seen."""
    context_limit: Decimal
    """How full a conversation may be, of the next model's window, to be resumed."""

    @property
    def context_low(self) -> Decimal:
        """From here on the gauge warns."""
        return self.context_limit * 3 / 4


def load_details(overview: Overview, rights: frozenset[Right]) -> Details:
    """Three queries: what the runs of the chain did, the conversation, and the incidents. In a dry
    run one more."""
    session = overview.session
    step = next(s for s in steps_of(overview.chain.sessions) if s.session.pk == session.pk)
    conversation = _conversation(session.session_id)
    limits = ResumeLimits(
        context=settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD,
        max_age_seconds=settings.CLAUDEOPS_RESUME_MAX_AGE,
    )
    return Details(
        step=step,
        receipt=receipt_of(session, step.parent),
        resumable=resumable(session, conversation, limits, timezone.now()),
        answer=answer_of(session) if session.is_question else None,
        conversation=conversation,
        continuation_facts=read_facts(session.continuation_facts),
        handoff=indented(session.handoff),
        actions=offered_actions(session, rights),
        incidents=tuple(session.cycle.incidents.order_by("pk")[:INCIDENTS_SHOWN]),
        dry_commands=_dry_commands(session) if Right.SEE_OUTPUT in rights else None,
        context_limit=limits.context,
    )


def _dry_commands(session: Session) -> tuple[DryCommand, ...] | None:
    return would_have_run([session]) if is_dry(session) else None


def _conversation(session_id: str) -> Conversation | None:
    return Conversation.objects.filter(session_id=session_id).first() if session_id else None


def load_overview(session: Session) -> Overview:
    chain, approvals = chain_of(session), _waiting_approvals(session)
    return Overview(
        session=session,
        chain=chain,
        report=marked_report(read_report(session.report), session.report, session.cycle_id),
        approvals=approvals,
        version=_version(session.cycle, chain, approvals),
    )


def _waiting_approvals(session: Session) -> tuple[Approval, ...]:
    """A run that has ended waits for nobody."""
    if not session.is_open:
        return ()
    return tuple(session.approvals.filter(state=Approval.State.WAITING).order_by("pk"))


def _version(cycle: Cycle, chain: Chain, approvals: tuple[Approval, ...]) -> str:
    facts = (
        f"{cycle.state} {cycle.outcome} {cycle.outcome_reason}",
        [approval.pk for approval in approvals],
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
