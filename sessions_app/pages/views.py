"""Pages that show. Each answers a browser with a page and htmx with the part that may change."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.models import Session, Watch
from sessions_app.pages.commands_page import load_commands
from sessions_app.pages.costs_csv import costs_as_csv
from sessions_app.pages.costs_page import (
    DEFAULT_PERIOD,
    PERIODS,
    known_period,
    load_comparison,
    load_costs,
)
from sessions_app.pages.dashboard import dashboard_version, load_dashboard
from sessions_app.pages.filters import SessionFilter, address_without_page
from sessions_app.pages.htmx import HtmxRequest, wants_fragment
from sessions_app.pages.keyset import position_in
from sessions_app.pages.session_list import load_sessions
from sessions_app.pages.session_page import load_details, load_log, load_overview
from sessions_app.reading.spending import load_budgets

SESSIONS_PER_PAGE = 50
NO_CHANGE = 204


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def dashboard(request: HtmxRequest) -> HttpResponse:
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == dashboard_version():
        return HttpResponse(status=NO_CHANGE)
    page = load_dashboard()
    context = {"dashboard": page, "glance": page.glance}
    template = "_dashboard_update.html" if fragment else "dashboard.html"
    return render(request, f"sessions_app/{template}", context)


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def sessions(request: HtmxRequest) -> HttpResponse:
    form = SessionFilter(request.GET, label_suffix="")
    context = {
        "form": form,
        "list": load_sessions(form, position_in(request.GET), SESSIONS_PER_PAGE),
        "address": address_without_page(request.GET),
    }
    template = "_session_table.html" if wants_fragment(request) else "session_list.html"
    return render(request, f"sessions_app/{template}", context)


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def session(request: HtmxRequest, pk: int) -> HttpResponse:
    overview = load_overview(_session_or_404(pk))
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == overview.version:
        return HttpResponse(status=NO_CHANGE)
    rights = rights_of(request.user)
    context = {
        "overview": overview,
        "details": load_details(overview, rights),
        "session": overview.session,
    }
    if not fragment:
        if Right.SEE_OUTPUT in rights:
            context["log"] = load_log(pk)
            context["commands"] = load_commands(overview.session)
        return render(request, "sessions_app/session_detail.html", context)
    return render(request, "sessions_app/_session_update.html", context)


@needs(Right.SEE_OUTPUT)
@require_safe
@vary_on_headers("HX-Request")
def session_events(request: HtmxRequest, pk: int) -> HttpResponse:
    """Earlier events, a stretch at a time."""
    found = _session_or_404(pk)
    context = {"session": found, "log": load_log(pk, _number(request.GET.get("before")))}
    template = "_log_entries.html" if wants_fragment(request) else "session_events.html"
    return render(request, f"sessions_app/{template}", context)


@needs(Right.SEE)
@require_safe
def costs(request: HtmxRequest) -> HttpResponse:
    period = known_period(request.GET.get("period", DEFAULT_PERIOD))
    drills = request.GET.get("drills") == "yes"
    if request.GET.get("format") == "csv":
        name = f"costs-{period}{'-drills' if drills else ''}"
        return _csv(name, costs_as_csv(period, drills=drills))
    context: dict[str, object] = {"period": period, "drills": drills, "periods": PERIODS.items()}
    if request.GET.get("view") == "continuity":
        context["comparison"] = load_comparison(period, drills=drills)
        return render(request, "sessions_app/costs_continuity.html", context)
    watches = list(Watch.objects.all())
    context["costs"] = load_costs(period, drills=drills, watches=watches)
    context["budgets"] = None if drills else load_budgets(watches)
    return render(request, "sessions_app/costs.html", context)


def _csv(name: str, text: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)


def _session_or_404(pk: int) -> Session:
    related = Session.objects.select_related("cycle__watch", "cycle__requested_by", "requested_by")
    return get_object_or_404(related, pk=pk)


def _number(text: str | None) -> int | None:
    """A sequence number from outside; anything else counts as not given."""
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if text is not None and is_number else None
