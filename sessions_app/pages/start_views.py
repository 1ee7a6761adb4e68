"""The guide of the first start."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.pages.first_watch_form import FirstWatchForm
from sessions_app.pages.htmx import HtmxRequest, wants_fragment
from sessions_app.pages.start_page import StartPage, load_start


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def start(request: HtmxRequest) -> HttpResponse:
    template = "_start.html" if wants_fragment(request) else "start.html"
    return show_start(request, load_start(request.GET), FirstWatchForm(), template)


def show_start(
    request: HttpRequest, page: StartPage, form: FirstWatchForm, template: str = "start.html"
) -> HttpResponse:
    return render(request, f"sessions_app/{template}", {"start": page, "form": form})
