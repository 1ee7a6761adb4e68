"""Pages of watches: the list, one of them, and the forms that change one."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.models import Cycle, Incident, Watch
from sessions_app.pages.htmx import HtmxRequest, wants_fragment
from sessions_app.pages.watch_form import WatchForm
from sessions_app.pages.watch_list import load_watches
from sessions_app.pages.watch_news import current_token, watches_with_news
from sessions_app.pages.watch_page import load_watch
from sessions_app.reading.glance import load_glance

NOT_TAKEN = 422
NO_CHANGE = 204


@needs(Right.SEE)
@require_safe
def watches(request: HttpRequest) -> HttpResponse:
    return render(request, "sessions_app/watches.html", {"rows": load_watches()})


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def watch(request: HtmxRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(watches_with_news(), pk=pk)
    glance, fragment = load_glance(), wants_fragment(request)
    if fragment and request.GET.get("version") == current_token(found, glance):
        return HttpResponse(status=NO_CHANGE)
    page = load_watch(found, glance)
    context = {"watch": found, "page": page, "glance": glance}
    template = "_watch_update.html" if fragment else "watch.html"
    return render(request, f"sessions_app/{template}", context)


@needs(Right.CHANGE_WATCHES)
@require_safe
def new_watch(request: HttpRequest) -> HttpResponse:
    return show_form(request, WatchForm())


@needs(Right.CHANGE_WATCHES)
@require_safe
def watch_settings(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Watch, pk=pk)
    return show_form(request, WatchForm(instance=found), found)


@needs(Right.CHANGE_WATCHES)
@require_safe
def watch_removal(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Watch, pk=pk)
    unresolved = Incident.objects.filter(watch=found, state__in=Incident.UNRESOLVED_STATES)
    context = {
        "watch": found,
        "active": Cycle.active_of(found),
        "unresolved": unresolved.count(),
    }
    return render(request, "sessions_app/watch_removal.html", context)


def show_form(request: HttpRequest, form: WatchForm, watch: Watch | None = None) -> HttpResponse:
    """Of a new watch or of one that is there, with what was wrong in a form that was not taken."""
    status = NOT_TAKEN if form.is_bound and form.errors else 200
    context = {"form": form, "watch": watch, "zone": zone()}
    return render(request, "sessions_app/watch_form.html", context, status=status)


def zone() -> str:
    return timezone.get_current_timezone_name()
