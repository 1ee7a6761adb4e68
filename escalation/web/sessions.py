"""Pages of sessions: the list, one session with its events, and the actions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.errors import OperationRefused, RefusalCode
from escalation.supervisor import manual
from escalation.supervisor.successors import what_it_waits_for
from escalation.web.lists import (
    DOWN_TO,
    KeysetPage,
    PagePosition,
    SessionFilter,
    address_without_page,
    look_down,
    of_rows,
    page_of,
    position_in,
)
from escalation.web.live import LogEntry, log_entries, one_row_a_call
from escalation.web.responses import HtmxRequest, wants_fragment
from escalation.web.resume_comparison import ContinuedSession, steps_of
from escalation.web.sandbox import load_commands
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.costs.check import CostCheck, check_costs
from sessions_app.costs.spending import chain_limit
from sessions_app.history.chain import Chain, chain_of, session_cost
from sessions_app.history.claims import (
    ReportItem,
    ShownReport,
    marked_report,
    read_facts,
    read_report,
)
from sessions_app.history.commands import (
    DeniedCommand,
    DryCommand,
    denied_commands,
    is_dry,
    would_have_run,
)
from sessions_app.history.resume import Receipt, Resumable, ResumeLimits, receipt_of, resumable
from sessions_app.history.session_actions import (
    LONGEST_REQUEST,
    SessionAction,
    actions_for,
    held_back,
    withheld_tier,
)
from sessions_app.models import Approval, Conversation, Cycle, Incident, Session, SessionEvent
from sessions_app.models.search import LARGEST_NUMBER, SHORTEST_WORDS, is_too_short, newest_matches
from sessions_app.redaction.redact import redacted
from sessions_app.text import duration, indented, rendered, token_limit
from sessions_app.tiers import LOWEST_TIER

# Questions about a chain with their rendered answers.


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionAnswer:
    session: Session
    html: SafeString

    @property
    def is_given(self) -> bool:
        return bool(self.html)


def answers_in(sessions: Iterable[Session]) -> tuple[SessionAnswer, ...]:
    asked = sorted((s for s in sessions if s.is_question), key=lambda session: session.pk)
    return tuple(map(answer_of, asked))


def answer_of(session: Session) -> SessionAnswer:
    return SessionAnswer(session=session, html=rendered(redacted(session.result)))


# Actions that a user is offered: those that the endpoint would accept.

ACTION_RIGHTS = {
    "follow_up": Right.FOLLOW_UP,
    "fork_session": Right.RUN,
    "retry_session": Right.RUN,
    "escalate_session": Right.ESCALATE,
    "allow_session": Right.APPROVE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedActions:
    session: Session
    actions: tuple[SessionAction, ...]
    held_back: str


def offered_actions(
    session: Session,
    chain: Chain,
    rights: frozenset[Right],
    denied: Iterable[DeniedCommand] | None = None,
) -> OfferedActions:
    """Makes one query for what was `denied`, unless it is given or no tier was withheld."""
    if denied is None:
        allows = Right.APPROVE in rights and not session.cycle.is_active
        withheld = withheld_tier(session, chain.sessions) if allows else None
        denied = denied_commands([withheld.origin]) if withheld is not None else ()
    limit = chain_limit(session.cycle)
    spent = limit is not None and chain.total_cost_usd + chain.estimated_cost_usd >= limit
    offered = actions_for(session, chain.sessions, denied=denied, chain_is_spent=spent)
    return OfferedActions(
        session=session,
        actions=tuple(action for action in offered if ACTION_RIGHTS[action.name] in rights),
        held_back=held_back(session),
    )


def last_worker(chain: Chain) -> Session:
    """Returns the last session that was neither a question nor a plan session nor in a branch."""
    workers = [run for run in chain.sessions if run.traits.may_change and not run.in_branch]
    return max(workers or chain.sessions, key=lambda session: session.pk)


EVENTS_SHOWN = 500
INCIDENTS_SHOWN = 20
# Fields of a session whose change makes the page refresh.
WATCHED_FIELDS = (
    *("pk", "status", "branch_outcome", "session_id", "escalation_reason"),
    *("continued_by", "continued_why"),
    *("cost_usd", "reported_cost_usd", "estimated_cost_usd", "compactions"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """A page of a session's events, oldest first."""

    entries: tuple[LogEntry, ...]
    first: int
    last: int
    has_earlier: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """Everything on the page that changes while the session runs."""

    session: Session
    chain: Chain
    report: ShownReport | None
    approvals: tuple[Approval, ...]
    """Waiting approvals of this session."""
    version: str

    @property
    def cycle(self) -> Cycle:
        return self.session.cycle

    @property
    def sentence(self) -> str:
        """Returns the session in one sentence, which is the title of the page."""
        return sentence_of(self.session)

    @property
    def may_change(self) -> bool:
        return self.session.is_open or self.cycle.is_active


def sentence_of(session: Session) -> str:
    """Returns a session in one sentence: "shop: Tier 2 completed in 1.2 s for $0.06"."""
    is_plain = session.purpose == Session.Purpose.TIER
    purpose = "" if is_plain else f" ({session.get_purpose_display()})"
    subject = f"{session.cycle.subject}: Tier {session.tier}{purpose}"
    match session.status:
        case Session.Status.QUEUED:
            return f"{subject} waits for a worker"
        case Session.Status.AWAITING_APPROVAL:
            return f"{subject} waits for approval"
        case Session.Status.RUNNING:
            return f"{subject} is at work"
    is_passive = session.status in (Session.Status.INTERRUPTED, Session.Status.CANCELLED)
    said = f"{'was ' if is_passive else ''}{session.get_status_display()}"
    if session.stopped_by:
        said = f"was stopped by {session.stopped_by}"
    took = f" in {duration(session.duration_ms)}" if session.duration_ms is not None else ""
    known = session.cost_usd is not None or session.estimated_cost_usd is not None
    spent = f" for {session_cost(session)}" if known else ""
    return f"{subject} {said}{took}{spent}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """Parts that need further queries, loaded only when the page is rendered."""

    checks: tuple[CostCheck, ...]
    """Sums of the chain against what the CLI reported."""
    step: ContinuedSession
    """Context carried over and work repeated."""
    receipt: Receipt | None
    """None for the first session of the chain."""
    resumable: Resumable
    attach_command: str
    """Command that opens the conversation in a terminal; empty if the user may not do that."""
    answer: SessionAnswer | None
    conversation: Conversation | None
    continuation_facts: tuple[ReportItem, ...]
    handoff: str
    actions: OfferedActions
    incidents: tuple[Incident, ...]
    """Incidents of its cycle."""
    dry_commands: tuple[DryCommand, ...] | None
    """Commands that it would have run; None unless it is a dry run that the user may see."""
    context_limit: Decimal
    """Share of the next model's context window up to which a conversation is resumed."""

    @property
    def context_low(self) -> Decimal:
        """Returns the share from which the gauge warns."""
        return self.context_limit * 3 / 4


def load_details(overview: Overview, rights: frozenset[Right]) -> Details:
    """Makes three queries: work of the chain, conversation and incidents; one more in a dry run."""
    session = overview.session
    step = next(s for s in steps_of(overview.chain.sessions) if s.session.pk == session.pk)
    conversation = _conversation(session.session_id)
    limits = ResumeLimits(
        context_threshold=settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD,
        max_age_seconds=settings.CLAUDEOPS_RESUME_MAX_AGE,
    )
    can_resume = resumable(session, conversation, limits, timezone.now())
    is_attachable = can_resume.is_possible and not overview.may_change and Right.RUN in rights
    return Details(
        checks=check_costs(overview.chain),
        step=step,
        receipt=receipt_of(session, step.parent),
        resumable=can_resume,
        attach_command=f"claudeops session attach {session.pk}" if is_attachable else "",
        answer=answer_of(session) if session.is_question else None,
        conversation=conversation,
        continuation_facts=read_facts(session.continuation_facts),
        handoff=indented(session.handoff),
        actions=offered_actions(session, overview.chain, rights),
        incidents=tuple(session.cycle.incidents.order_by("pk")[:INCIDENTS_SHOWN]),
        dry_commands=_dry_commands(session) if Right.SEE_OUTPUT in rights else None,
        context_limit=limits.context_threshold,
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
        report=marked_report(
            read_report(session.report),
            session.report,
            session.cycle_id,
            chain.branches_on_path(session),
        ),
        approvals=approvals,
        version=_version(session.cycle, chain, approvals),
    )


def _waiting_approvals(session: Session) -> tuple[Approval, ...]:
    """Returns waiting approvals; an ended session has none."""
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
    """Returns the last events, or the last ones before a number.

    Reads one more than shown to know whether earlier ones exist.
    """
    events = SessionEvent.objects.filter(session=session_pk).order_by("-sequence")
    if before is not None:
        events = events.filter(sequence__lt=before)
    newest_first = list(events[: EVENTS_SHOWN + 1])
    shown = newest_first[:EVENTS_SHOWN][::-1]
    return Log(
        entries=tuple(one_row_a_call(log_entries(shown))),
        first=shown[0].sequence if shown else 0,
        last=shown[-1].sequence if shown else -1,
        has_earlier=len(newest_first) > EVENTS_SHOWN,
    )


# List of sessions: filtered along indexes, or searched by words.

MATCHES_LOOKED_AT = 5_000
SESSIONS_LOOKED_AT = 30_000
"""Sessions examined for one page; the next page continues after them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionList:
    page: KeysetPage[Session]
    is_filtered: bool
    has_no_way_back: bool = False
    """True if the pager can only return to the newest page."""
    remark: str = ""
    """Reason why fewer rows are shown than expected."""


def load_sessions(form: SessionFilter, position: PagePosition, size: int) -> SessionList:
    if form.words:
        return _searched(form, position, size)
    if form.combined > 1:
        return _combined(form, position, size)
    page = page_of(form.apply(Session.objects.for_list()), position, size)
    return SessionList(page=page, is_filtered=bool(form.chosen))


def _combined(form: SessionFilter, position: PagePosition, size: int) -> SessionList:
    """Scans rows that one filter's index finds and checks the other filters, a bounded number at a
    time.
    """
    rows = form.apply(Session.objects.for_list())
    page, remark = look_down(rows, position, size, most=SESSIONS_LOOKED_AT)
    return SessionList(page=page, is_filtered=True, has_no_way_back=True, remark=remark)


def _searched(form: SessionFilter, position: PagePosition, size: int) -> SessionList:
    if is_too_short(form.words):
        page: KeysetPage[Session] = of_rows([], PagePosition(), size)
        remark = f"To search takes {SHORTEST_WORDS} letters or more, or the number of a session."
        return SessionList(page=page, is_filtered=True, has_no_way_back=True, remark=remark)
    numbers, down_to = newest_matches(
        form.apply(Session.objects.all()),
        form.words,
        below=LARGEST_NUMBER if position.before is None else position.before,
        wanted=size + 1,
        looked_at=MATCHES_LOOKED_AT,
    )
    rows = Session.objects.for_list().filter(pk__in=numbers).order_by("-pk")
    page = of_rows(list(rows), position, size)
    if page.older is None and down_to:
        page, remark = replace(page, older=down_to), DOWN_TO.format(down_to)
        return SessionList(page=page, is_filtered=True, has_no_way_back=True, remark=remark)
    return SessionList(page=page, is_filtered=True, has_no_way_back=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptText:
    """Text of a refused form, which the page shows again."""

    action: str
    text: str


NO_CHANGE = 204
SESSIONS_PER_PAGE = 50


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def sessions(request: HtmxRequest) -> HttpResponse:
    form = SessionFilter(request.GET, label_suffix="")
    context = {
        "form": form,
        "list": load_sessions(form, position_in(request.GET), SESSIONS_PER_PAGE),
        "address": address_without_page(request.GET),
    }
    template = "_session_table.html" if wants_fragment(request) else "session_list.html"
    return render(request, f"web/{template}", context)


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def session(request: HtmxRequest, pk: int) -> HttpResponse:
    overview = load_overview(_session_or_404(pk))
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == overview.version:
        return HttpResponse(status=NO_CHANGE)
    if fragment:
        context = _context(request, overview)
        return render(request, "web/_session_update.html", context)
    return _page(request, overview)


def _page(request: HttpRequest, overview: Overview, kept: KeptText | None = None) -> HttpResponse:
    context = {**_context(request, overview), "kept": kept}
    if Right.SEE_OUTPUT in rights_of(request.user):
        context["log"] = load_log(overview.session.pk)
        context["commands"] = load_commands(overview.session)
    return render(request, "web/session_detail.html", context)


def _page_with_text(request: HttpRequest, pk: int, text: str) -> HttpResponse:
    """Render the page with the text of the refused form."""
    match = request.resolver_match
    kept = KeptText(action=match.url_name or "" if match else "", text=text)
    return _page(request, load_overview(_session_or_404(pk)), kept)


def _context(request: HttpRequest, overview: Overview) -> dict[str, Any]:
    return {
        "overview": overview,
        "details": load_details(overview, rights_of(request.user)),
        "session": overview.session,
        "message_limit": token_limit(LONGEST_REQUEST),
    }


@needs(Right.SEE_OUTPUT)
@require_safe
@vary_on_headers("HX-Request")
def session_events(request: HtmxRequest, pk: int) -> HttpResponse:
    """Returns a page of earlier events."""
    found = _session_or_404(pk)
    context = {"session": found, "log": load_log(pk, _number(request.GET.get("before")))}
    template = "_log_entries.html" if wants_fragment(request) else "session_events.html"
    return render(request, f"web/{template}", context)


def _session_or_404(pk: int) -> Session:
    related = Session.objects.select_related("cycle__watch", "cycle__requested_by", "requested_by")
    return get_object_or_404(related, pk=pk)


def _number(text: str | None) -> int | None:
    """Reads a sequence number from a request; anything else is ignored."""
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if text is not None and is_number else None


UNCONFIRMED = "This may change the system: tick the box to confirm it."


@acting(Right.FOLLOW_UP)
def follow_up(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(
        request,
        pk,
        lambda session, user, text: manual.follow_up(session, text, requested_by=user),
    )


@acting(Right.RUN)
def fork_session(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(
        request,
        pk,
        lambda session, user, text: manual.fork(
            session, text, requested_by=user, confirmed=_confirmed(request)
        ),
        changes=lambda session: session.tier > LOWEST_TIER,
    )


@acting(Right.RUN)
def retry_session(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(
        request,
        pk,
        lambda session, user, text: manual.retry(
            session,
            requested_by=user,
            force_fresh=bool(request.POST.get("fresh")),
            confirmed=_confirmed(request),
        ),
        changes=lambda session: session.tier > LOWEST_TIER,
    )


@acting(Right.ESCALATE)
def escalate_session(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(
        request,
        pk,
        lambda session, user, text: manual.escalate(
            session,
            text,
            requested_by=user,
            force_fresh=bool(request.POST.get("fresh")),
            confirmed=_confirmed(request),
        ),
        changes=lambda session: True,
    )


@acting(Right.APPROVE)
def allow_session(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(
        request,
        pk,
        lambda session, user, text: manual.allow_once(
            session,
            by=user,
            way=Approval.Way.PAGE,
            note=text,
            budget_usd=dollars_in(request.POST.get("budget", "")),
        ),
        changes=lambda session: True,
    )


def dollars_in(text: str) -> Decimal | None:
    """Reads an amount of dollars; empty text means the limit of the tier."""
    if not text.strip():
        return None
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite():
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE,
            f"{text[:40]!r} is not an amount of dollars, such as 0.50.",
        )
    return amount


@acting(Right.RUN)
def tell_session(request: HttpRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(Session, pk=pk)
    text = request.POST.get("text", "")
    try:
        said = manual.tell(session, text, by=request.user.get_username())
    except OperationRefused as refused:
        messages.warning(request, str(refused))
        if refused.code == RefusalCode.TEXT_TOO_LONG:
            return _page_with_text(request, pk, text)
    else:
        messages.success(request, said)
    return redirect(session)


@acting(Right.STOP)
def stop_session(request: HttpRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(Session, pk=pk)
    if not _confirmed(request):
        messages.warning(request, "Tick the box to confirm that the run is cut off.")
    elif manual.stop(session, by=request.user.get_username()):
        messages.warning(request, f"Session {session.pk} is being stopped.")
    else:
        messages.warning(request, f"Session {session.pk} is not running any more.")
    return redirect(session)


def _act(
    request: HttpRequest,
    pk: int,
    operate: Callable[[Session, User, str], Session],
    changes: Callable[[Session], bool] = lambda session: False,
) -> HttpResponse:
    session = get_object_or_404(Session.objects.select_related("cycle__watch"), pk=pk)
    if changes(session) and not _confirmed(request):
        messages.warning(request, UNCONFIRMED)
        return redirect(session)
    text = request.POST.get("request", "")
    try:
        created = operate(session, cast(User, request.user), text)
    except OperationRefused as refused:
        messages.warning(request, str(refused))
        if refused.code == RefusalCode.TEXT_TOO_LONG:
            return _page_with_text(request, pk, text)
        return redirect(session)
    messages.success(request, what_it_waits_for(created))
    return redirect(created)


def _confirmed(request: HttpRequest) -> bool:
    return bool(request.POST.get("confirm"))
