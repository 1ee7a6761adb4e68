"""The list of cycles."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.pages.cycles_page import load_cycles
from sessions_app.pages.htmx import HtmxRequest, wants_fragment


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def cycles(request: HtmxRequest) -> HttpResponse:
    template = "_cycle_list.html" if wants_fragment(request) else "cycles.html"
    return render(request, f"sessions_app/{template}", {"list": load_cycles(request.GET)})
