"""Pages about approvals: what waits for a person, and what was answered."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.pages.approvals_page import load_approval, load_approvals, with_subject
from sessions_app.pages.htmx import HtmxRequest


@needs(Right.SEE_OUTPUT)
@require_safe
def approvals(request: HtmxRequest) -> HttpResponse:
    page = load_approvals(request.GET.get("page"))
    return render(request, "sessions_app/approvals.html", {"approvals": page})


@needs(Right.SEE_OUTPUT)
@require_safe
def approval(request: HtmxRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(with_subject(), pk=pk)
    context = {"shown": load_approval(found), "approval": found}
    return render(request, "sessions_app/approval_detail.html", context)
