"""The page of changes."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.pages.changes_page import load_changes
from sessions_app.pages.htmx import HtmxRequest, wants_fragment


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def changes(request: HtmxRequest) -> HttpResponse:
    template = "_change_list.html" if wants_fragment(request) else "changes.html"
    return render(request, f"sessions_app/{template}", {"list": load_changes(request.GET)})
