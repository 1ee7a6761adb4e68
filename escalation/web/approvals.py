"""Pages of approvals: the list, one approval, and the answers."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from escalation.errors import OperationRefused
from escalation.supervisor import approval_answers as answers
from escalation.supervisor import approvals
from escalation.web.lists import shows_drills
from escalation.web.responses import HtmxRequest
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, may
from sessions_app.history.chain import Chain, chain_of
from sessions_app.models import Approval, Incident

PAST_PER_PAGE = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalsPage:
    waiting: tuple[Approval, ...]
    past: Page[Approval]


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalShown:
    approval: Approval
    chain: Chain
    incident: Incident | None

    @property
    def can_be_answered(self) -> bool:
        return self.approval.is_waiting and not self.approval.is_overdue

    @property
    def can_be_planned(self) -> bool:
        """Returns whether its tier continues a conversation and has no plan yet."""
        approval = self.approval
        return (
            approval.kind == Approval.Kind.TIER
            and approval.plan_run is None
            and approval.session.parent_session_id is not None
        )


def load_approvals(page: str | None, *, drills: bool = False) -> ApprovalsPage:
    """Returns waiting approvals, oldest first, and a page of answered ones, newest first."""
    found = approvals_of(drills=drills)
    past = found.exclude(state=Approval.State.WAITING).order_by("-id")
    return ApprovalsPage(
        waiting=waiting_approvals(drills=drills),
        past=Paginator(past, PAST_PER_PAGE).get_page(page),
    )


def waiting_approvals(*, drills: bool | None = False) -> tuple[Approval, ...]:
    found = approvals_of(drills=drills).filter(state=Approval.State.WAITING)
    return tuple(found.order_by("expires_at", "id"))


def approvals_of(*, drills: bool | None) -> QuerySet[Approval]:
    """Returns approvals of earnest cycles, of drills, or with None of both."""
    earnest = {"session__cycle__drill": ""}
    found = with_subject()
    if drills is None:
        return found
    return found.exclude(**earnest) if drills else found.filter(**earnest)


def load_approval(approval: Approval) -> ApprovalShown:
    """Makes two queries."""
    cycle = approval.session.cycle
    return ApprovalShown(
        approval=approval,
        chain=chain_of(approval.session),
        incident=cycle.incidents.order_by("-severity", "-pk").first(),
    )


def with_subject() -> QuerySet[Approval]:
    return Approval.objects.select_related("session__cycle__watch", "decided_by", "plan_run")


@needs(Right.SEE_OUTPUT)
@require_safe
def approval_list(request: HtmxRequest) -> HttpResponse:
    drills = shows_drills(request.GET)
    page = load_approvals(request.GET.get("page"), drills=drills)
    return render(request, "web/approvals.html", {"approvals": page, "drills": drills})


@needs(Right.SEE_OUTPUT)
@require_safe
def approval(request: HtmxRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(with_subject(), pk=pk)
    context = {"shown": load_approval(found), "approval": found}
    return render(request, "web/approval_detail.html", context)


# Answers, on the page of the approval or by the link in a message.

APPROVE, REJECT = "approve", "reject"
UNCLEAR = "Nothing was answered: choose Approve or Reject."


@acting(Right.APPROVE)
def approve(request: HttpRequest, pk: int) -> HttpResponse:
    return _answered_on_page(request, pk, APPROVE)


@acting(Right.APPROVE)
def reject(request: HttpRequest, pk: int) -> HttpResponse:
    return _answered_on_page(request, pk, REJECT)


@acting(Right.RUN)
def plan(request: HttpRequest, pk: int) -> HttpResponse:
    related = Approval.objects.select_related("session__cycle__watch", "session__parent_session")
    approval = get_object_or_404(related, pk=pk)
    try:
        planning = answers.plan(approval, by=cast(User, request.user))
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(request, f"Session {planning.pk} is queued: its plan appears here.")
    return redirect(approval)


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def by_link(request: HttpRequest, token: str) -> HttpResponse:
    """Shows an approval to anyone with its link, and records an answer by POST.

    A GET changes nothing, since mail programs and scanners open links too. An answered approval no
    longer shows its command.
    """
    link = approvals.opened(token)
    if link is None:
        raise Http404
    said, went_well = "", False
    if request.method == "POST":
        answer = request.POST.get("answer", "")
        said, went_well = _said(request, link.approval, link.user, answer, Approval.Way.LINK)
        link.approval.refresh_from_db()
    shown = load_approval(link.approval)
    is_over = not shown.can_be_answered and not went_well
    context = {
        "shown": shown,
        "over": approvals.too_late(link.approval) if is_over else "",
        "approval": link.approval,
        "account": link.user,
        "may_see": may(link.user, Right.SEE_OUTPUT),
        "objection": approvals.objection_to(link.approval, link.user),
        "said": said,
        "prefers_rejection": request.GET.get("answer") == REJECT,
        "went_well": went_well,
    }
    return render(request, "web/approval_link.html", context)


@csrf_exempt
@login_not_required
@never_cache
@require_POST
def by_button(request: HttpRequest, token: str) -> HttpResponse:
    """Takes the press of a button of ntfy, whose signed address holds for one answer of one person.

    Whoever only opens the address changes nothing.
    """
    pressed = approvals.pressed(token, Approval.Way.NTFY)
    if pressed is None:
        return _plain("This button is not valid: answer on the page.", HTTPStatus.NOT_FOUND)
    try:
        return _plain(answers.press(pressed), HTTPStatus.OK)
    except OperationRefused as refused:
        return _plain(str(refused), HTTPStatus.CONFLICT)


def _plain(text: str, status: HTTPStatus) -> HttpResponse:
    return HttpResponse(f"{text}\n", content_type="text/plain; charset=utf-8", status=status)


def _answered_on_page(request: HttpRequest, pk: int, answer: str) -> HttpResponse:
    approval = get_object_or_404(Approval.objects.select_related("session__cycle__watch"), pk=pk)
    said, went_well = _said(request, approval, cast(User, request.user), answer, Approval.Way.PAGE)
    (messages.success if went_well else messages.warning)(request, said)
    return redirect(approval.session.cycle if went_well else approval)


def _said(
    request: HttpRequest, approval: Approval, user: User, answer: str, way: Approval.Way
) -> tuple[str, bool]:
    note = request.POST.get("note", "")
    try:
        match answer:
            case "approve":
                answers.approve(approval, by=user, way=way, note=note)
                return answers.what_follows(approval), True
            case "reject":
                answers.reject(approval, by=user, way=way, note=note)
                return answers.REJECTED, True
    except OperationRefused as refused:
        return str(refused), False
    return UNCLEAR, False
