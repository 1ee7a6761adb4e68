"""The page of one cycle: its chain, live while it runs."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.models import Cycle, Session
from sessions_app.pages.chain_log import load_chain_log
from sessions_app.pages.chain_page import load_chain_details, load_chain_page
from sessions_app.pages.htmx import HtmxRequest, wants_fragment
from sessions_app.pages.live_look import HEADING_FIELDS
from sessions_app.pages.live_position import read_position

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
    context: dict[str, Any] = {
        "page": page,
        "cycle": page.cycle,
        "chain": page.chain,
        "details": load_chain_details(page, rights),
    }
    if fragment:
        return render(request, "sessions_app/_cycle_update.html", context)
    if Right.SEE_OUTPUT in rights:
        context["log"] = load_chain_log(page.cycle, page.chain.sessions)
    return render(request, "sessions_app/cycle_detail.html", context)


@needs(Right.SEE_OUTPUT)
@require_safe
@vary_on_headers("HX-Request")
def cycle_events(request: HtmxRequest, pk: int) -> HttpResponse:
    """Earlier output, a stretch at a time."""
    found = _cycle_or_404(pk)
    sessions = Session.objects.filter(cycle=found).only(*HEADING_FIELDS)
    log = load_chain_log(found, sessions, read_position(request.GET.get("before")))
    template = "_chain_log.html" if wants_fragment(request) else "cycle_events.html"
    return render(request, f"sessions_app/{template}", {"cycle": found, "log": log})


def _cycle_or_404(pk: int) -> Cycle:
    return get_object_or_404(Cycle.objects.select_related("watch", "requested_by"), pk=pk)
