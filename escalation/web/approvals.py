"""Answering an approval: on its page, or by the link in a message."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from escalation.approvals import answering, links
from escalation.errors import OperationRefused
from escalation.next_step import approval as answers
from sessions_app.access.guard import acting
from sessions_app.access.roles import Right, may
from sessions_app.models import Approval
from sessions_app.pages.approvals_page import load_approval

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
    """A GET shows and changes nothing, whoever opens it: a person, a mail program, a scanner. Once
    it is over, a link that lies in some mailbox does not show what it was about any more."""
    link = links.opened(token)
    if link is None:
        raise Http404
    said, went_well = "", False
    if request.method == "POST":
        said, went_well = _said(request, link.approval, link.user, request.POST.get("answer", ""))
        link.approval.refresh_from_db()
    shown = load_approval(link.approval)
    is_over = not shown.can_be_answered and not went_well
    context = {
        "shown": shown,
        "over": answering.too_late(link.approval) if is_over else "",
        "approval": link.approval,
        "account": link.user,
        "may_see": may(link.user, Right.SEE_OUTPUT),
        "objection": answering.objection_to(link.approval, link.user),
        "said": said,
        "went_well": went_well,
    }
    return render(request, "sessions_app/approval_link.html", context)


def _answered_on_page(request: HttpRequest, pk: int, answer: str) -> HttpResponse:
    approval = get_object_or_404(Approval.objects.select_related("session__cycle__watch"), pk=pk)
    said, went_well = _said(request, approval, cast(User, request.user), answer)
    (messages.success if went_well else messages.warning)(request, said)
    return redirect(approval)


def _said(request: HttpRequest, approval: Approval, user: User, answer: str) -> tuple[str, bool]:
    note = request.POST.get("note", "")
    try:
        match answer:
            case "approve":
                answers.approve(approval, by=user, note=note)
                return _what_follows(approval), True
            case "reject":
                answers.reject(approval, by=user, note=note)
                return "Rejected: it does not run.", True
    except OperationRefused as refused:
        return str(refused), False
    return UNCLEAR, False


def _what_follows(approval: Approval) -> str:
    if approval.kind == Approval.Kind.TIER:
        return f"Approved: Tier {approval.session.tier} is queued."
    return "Approved: the command runs as soon as its run has seen it."
