"""Pages over all watches: how the services are, and what happened."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.pages.events_page import load_events
from sessions_app.pages.htmx import HtmxRequest, wants_fragment
from sessions_app.pages.services_page import load_services


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def services(request: HtmxRequest) -> HttpResponse:
    template = "_services.html" if wants_fragment(request) else "services.html"
    return render(request, f"sessions_app/{template}", {"list": load_services(request.GET)})


@needs(Right.SEE)
@require_safe
def events(request: HtmxRequest) -> HttpResponse:
    page = load_events(request.GET, rights_of(request.user))
    context = {"page": page, "zone": timezone.get_current_timezone_name()}
    return render(request, "sessions_app/events.html", context)
