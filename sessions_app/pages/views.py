"""Pages that show. Each answers a browser with a page and htmx with the part that may change."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import aget_object_or_404, get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_safe
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import HttpResponseClientRedirect

from sessions_app.models import Cycle, Session
from sessions_app.pages.costs_page import DEFAULT_PERIOD, PERIODS, load_costs
from sessions_app.pages.dashboard import dashboard_version, load_dashboard
from sessions_app.pages.filters import SessionFilter, address_without_page
from sessions_app.pages.htmx import HtmxRequest, wants_fragment
from sessions_app.pages.live import live_events
from sessions_app.pages.session_page import load_details, load_log, load_overview

SESSIONS_PER_PAGE = 50
NO_CHANGE = 204


@require_safe
@vary_on_headers("HX-Request")
def dashboard(request: HtmxRequest) -> HttpResponse:
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == dashboard_version():
        return HttpResponse(status=NO_CHANGE)
    template = "_dashboard.html" if fragment else "dashboard.html"
    return render(request, f"sessions_app/{template}", {"dashboard": load_dashboard()})


@require_safe
@vary_on_headers("HX-Request")
def sessions(request: HtmxRequest) -> HttpResponse:
    form = SessionFilter(request.GET, label_suffix="")
    found = form.apply(Session.objects.for_list().order_by("-id"))
    context = {
        "form": form,
        "is_filtered": bool(form.chosen),
        "page": Paginator(found, SESSIONS_PER_PAGE).get_page(request.GET.get("page")),
        "address": address_without_page(request.GET),
    }
    template = "_session_table.html" if wants_fragment(request) else "session_list.html"
    return render(request, f"sessions_app/{template}", context)


@require_safe
@vary_on_headers("HX-Request")
def session(request: HtmxRequest, pk: int) -> HttpResponse:
    overview = load_overview(_session_or_404(pk))
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == overview.version:
        return HttpResponse(status=NO_CHANGE)
    context = {
        "overview": overview,
        "details": load_details(overview),
        "session": overview.session,
    }
    if not fragment:
        context["log"] = load_log(pk)
        return render(request, "sessions_app/session_detail.html", context)
    return render(request, "sessions_app/_session_update.html", context)


@require_GET
async def session_live(request: HttpRequest, pk: int) -> StreamingHttpResponse:
    await aget_object_or_404(Session.objects.only("pk"), pk=pk)
    return StreamingHttpResponse(
        live_events(pk, _resume_after(request)),
        content_type="text/event-stream",
        # A proxy that collects the answer before passing it on would make live output pointless.
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


@require_safe
@vary_on_headers("HX-Request")
def session_events(request: HtmxRequest, pk: int) -> HttpResponse:
    """Earlier events, a stretch at a time."""
    found = _session_or_404(pk)
    context = {"session": found, "log": load_log(pk, _number(request.GET.get("before")))}
    template = "_log_entries.html" if wants_fragment(request) else "session_events.html"
    return render(request, f"sessions_app/{template}", context)


@require_safe
def costs(request: HtmxRequest) -> HttpResponse:
    page = load_costs(
        request.GET.get("period", DEFAULT_PERIOD), drills=request.GET.get("drills") == "yes"
    )
    context = {"costs": page, "periods": PERIODS.items()}
    return render(request, "sessions_app/costs.html", context)


@require_safe
def cycle(request: HtmxRequest, pk: int) -> HttpResponse:
    """A cycle is shown by its latest session; one that still waits has a page that waits too."""
    found = get_object_or_404(Cycle.objects.select_related("watch", "requested_by"), pk=pk)
    latest = found.sessions.order_by("-id").only("pk").first()
    if latest and request.htmx:
        return HttpResponseClientRedirect(latest.get_absolute_url())
    if latest:
        return redirect(latest)
    template = "_cycle.html" if wants_fragment(request) else "cycle_detail.html"
    return render(request, f"sessions_app/{template}", {"cycle": found})


def _session_or_404(pk: int) -> Session:
    related = Session.objects.select_related("cycle__watch", "cycle__requested_by", "requested_by")
    return get_object_or_404(related, pk=pk)


def _resume_after(request: HttpRequest) -> int:
    """What the browser has seen last; a reconnect knows better than the address of the page."""
    seen = _number(request.headers.get("Last-Event-ID"))
    if seen is None:
        seen = _number(request.GET.get("after"))
    return -1 if seen is None else seen


def _number(text: str | None) -> int | None:
    """A sequence number from outside; anything else counts as not given."""
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if text is not None and is_number else None
