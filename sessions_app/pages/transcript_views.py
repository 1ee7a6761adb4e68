"""The page of a transcript."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.models import Session
from sessions_app.pages.htmx import HtmxRequest, wants_fragment
from sessions_app.pages.transcript_page import UnknownSubagent, load_transcript


@needs(Right.SEE_OUTPUT)
@require_safe
@vary_on_headers("HX-Request")
def transcript(request: HtmxRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(Session.objects.select_related("cycle__watch"), pk=pk)
    asked = request.GET
    try:
        loaded = load_transcript(session, asked.get("page"), asked.get("agent", ""))
    except UnknownSubagent as error:
        raise Http404("The conversation has no such subagent.") from error
    agent = f"{urlencode({'agent': loaded.agent.name})}&" if loaded.agent else ""
    template = "_transcript.html" if wants_fragment(request) else "transcript.html"
    context = {
        "session": session,
        "transcript": loaded,
        "address": f"{request.path}?{agent}",
    }
    return render(request, f"sessions_app/{template}", context)
