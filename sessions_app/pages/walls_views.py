"""Pages about the walls: what was proved, and what the gate said in one session."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.models import Session
from sessions_app.pages.commands_page import commands_version, load_commands
from sessions_app.pages.htmx import HtmxRequest, wants_fragment
from sessions_app.pages.walls_page import load_walls
from sessions_app.reading.dry_commands import is_dry, would_have_run

NO_CHANGE = 204


@needs(Right.SEE)
@require_safe
def walls(request: HtmxRequest) -> HttpResponse:
    page = load_walls(
        only_failed=request.GET.get("failed") == "yes", tier=request.GET.get("tier", "")
    )
    return render(request, "sessions_app/walls.html", {"walls": page})


@needs(Right.SEE_OUTPUT)
@require_safe
@vary_on_headers("HX-Request")
def session_commands(request: HtmxRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(Session.objects.select_related("cycle__watch"), pk=pk)
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == commands_version(session):
        return HttpResponse(status=NO_CHANGE)
    commands = load_commands(session, request.GET.get("verdict", ""))
    template = "_commands.html" if fragment else "session_commands.html"
    context = {"session": session, "commands": commands, "dry_commands": None}
    if not fragment and is_dry(session):
        context["dry_commands"] = would_have_run([session])
    return render(request, f"sessions_app/{template}", context)
