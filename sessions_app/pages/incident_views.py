"""Pages of incidents: the list, and the story of one."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.models import Incident
from sessions_app.pages.htmx import HtmxRequest, wants_fragment
from sessions_app.pages.incident_page import load_incident, load_incidents


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def incidents(request: HtmxRequest) -> HttpResponse:
    template = "_incident_list.html" if wants_fragment(request) else "incident_list.html"
    return render(request, f"sessions_app/{template}", {"list": load_incidents(request.GET)})


@needs(Right.SEE)
@require_safe
def incident(request: HtmxRequest, pk: int) -> HttpResponse:
    related = Incident.objects.select_related("watch__schedule", "owner", "resolved_by")
    found = get_object_or_404(related, pk=pk)
    page = load_incident(found, rights_of(request.user))
    return render(request, "sessions_app/incident_detail.html", {"page": page, "incident": found})
