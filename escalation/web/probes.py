"""Page of the probes of a watch, and the address of heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.errors import OperationRefused
from escalation.probes import manage, proposals
from escalation.probes.results import NotAPing, added, percentile, ping_of
from escalation.probes.store import day_of, five_minutes_of
from escalation.probes.targets import OPTIONS
from escalation.web.responses import HtmxRequest, wants_fragment
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, note_added, note_changed, note_removed
from sessions_app.models import HeartbeatPing, Maintenance, Probe, ProbeSum, Watch
from sessions_app.models.installation import moment_text
from sessions_app.redaction.redact import redacted

ONE_IN = timedelta(seconds=1)
"""Calls of one kind within this time count as one, so that a flood fills no disk."""


DAYS, FIVE_MINUTES = 90, 12
PROBES_SHOWN = 30
CHART_WIDTH, CHART_HEIGHT = 120, 24
ALMOST = 0.99
"""Least uptime of a period that is shown as almost good."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BarMark:
    """One day or five minutes of a probe."""

    at: datetime
    look: str
    """good, warn, bad or none."""
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRow:
    probe: Probe
    days: tuple[BarMark, ...]
    hour: tuple[BarMark, ...]
    uptime: float | None
    """Percent of the days shown."""
    latency_ms: float | None
    """Median of the last hour."""
    line: str
    """Points of the line of latencies in the last hour, for an SVG polyline."""


def load_probes(watch: Watch, now: datetime | None = None) -> tuple[ProbeRow, ...]:
    """Makes one query, and a second one if the watch has probes."""
    now = now or timezone.now()
    probes = list(Probe.objects.filter(watch=watch).order_by("name")[:PROBES_SHOWN])
    if not probes:
        return ()
    days = [day_of(now) - timedelta(days=back) for back in range(DAYS)][::-1]
    fives = [five_minutes_of(now) - timedelta(minutes=5) * back for back in range(FIVE_MINUTES)]
    rows = ProbeSum.objects.filter(probe__in=probes).filter(
        Q(period=ProbeSum.Period.DAY, start__gte=days[0])
        | Q(period=ProbeSum.Period.FIVE_MINUTES, start__gte=fives[-1])
    )
    sums = {(row.probe_id, row.period, row.start): row for row in rows}
    return tuple(_row(probe, sums, days, fives[::-1]) for probe in probes)


class ProbeForm(forms.Form):
    """A new probe, in the words of `claudeops probe add`; `manage.add` validates them."""

    name = forms.CharField(max_length=100, help_text="Unique in the watch, like web-http.")
    service = forms.CharField(max_length=200, help_text="Service of the watch, as in its reports.")
    kind = forms.ChoiceField(choices=Probe.Kind.choices)
    target = forms.CharField(
        max_length=2_000,
        required=False,
        help_text="Address, HOST:PORT, name, command or path; empty for a heartbeat.",
    )
    every = forms.CharField(max_length=20, initial="60s", help_text="At least 5s.")
    timeout = forms.CharField(
        label="Time-out",
        max_length=20,
        initial="10s",
        help_text="For a heartbeat: how much later it may come.",
    )
    fail_after = forms.IntegerField(
        initial=2, help_text="Failures in a row after which the service is down."
    )
    recover_after = forms.IntegerField(
        initial=2, help_text="Good results in a row after which it is up again."
    )
    needs = forms.CharField(
        max_length=500,
        required=False,
        help_text="Probes whose failure explains the failure of this one, with commas.",
    )
    options = forms.CharField(
        max_length=2_000,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
        help_text=f"NAME=VALUE, one in a line: {', '.join(OPTIONS)}.",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **options})
        for field in self.fields.values():
            field.widget.attrs.update({"autocapitalize": "none", "autocomplete": "off"})

    def added_to(self, watch: Watch) -> Probe | None:
        """Adds the probe; without one the form has the reason as an error."""
        if not self.is_valid():
            return None
        given = self.cleaned_data
        pairs = (line.partition("=") for line in given["options"].splitlines() if line.strip())
        try:
            return manage.add(
                watch,
                **{key: given[key].strip() for key in ("name", "service", "kind", "target")},
                interval_seconds=manage.seconds_in(given["every"]),
                timeout_seconds=manage.seconds_in(given["timeout"]),
                fail_after=given["fail_after"],
                recover_after=given["recover_after"],
                needs=[name.strip() for name in given["needs"].split(",") if name.strip()],
                options={name.strip(): value.strip() for name, _equals, value in pairs},
            )
        except OperationRefused as refused:
            self.add_error(None, str(refused))
            return None


NOT_TAKEN = 422


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def probes(request: HtmxRequest, pk: int) -> HttpResponse:
    """The page; for htmx the proposals alone, as other pages show them."""
    watch = get_object_or_404(Watch, pk=pk)
    if not wants_fragment(request):
        return show_probes(request, watch, ProbeForm())
    back = request.GET.get("back", "")
    context = {"watch": watch, "proposals": proposals.offered(watch), "back": back}
    return render(request, "web/_probe_proposals.html", context)


def show_probes(request: HttpRequest, watch: Watch, form: ProbeForm) -> HttpResponse:
    """Renders the page, with the errors of a form that was refused."""
    windows = Maintenance.windows_of(watch)
    context = {
        "watch": watch,
        "probes": load_probes(watch),
        "proposals": proposals.offered(watch),
        "form": form,
        "windows": windows,
        "in_maintenance": any(window.holds_now for window in windows),
    }
    status = NOT_TAKEN if form.is_bound and form.errors else 200
    return render(request, "web/probes.html", context, status=status)


@acting(Right.CHANGE_WATCHES)
def add_probe(request: HttpRequest, pk: int) -> HttpResponse:
    watch, form = get_object_or_404(Watch, pk=pk), ProbeForm(request.POST)
    probe = form.added_to(watch)
    if probe is None:
        return show_probes(request, watch, form)
    note_added(request.user, probe)
    told = f"The probe {probe.name} was added. It runs within seconds."
    if probe.kind == Probe.Kind.HEARTBEAT:
        told = (
            f"The heartbeat {probe.name} was added. Call this address when the job has succeeded: "
            f"{manage.heartbeat_address(probe)}"
        )
    messages.success(request, told)
    return redirect("web:probes", pk)


@acting(Right.CHANGE_WATCHES)
def accept_probe(request: HttpRequest, pk: int) -> HttpResponse:
    """Makes a proposal a probe."""
    watch, key = get_object_or_404(Watch, pk=pk), request.POST.get("key", "")
    try:
        probe = proposals.accept(watch, key, by=request.user.get_username())
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        note_added(request.user, probe)
        messages.success(request, f"The probe {probe.name} was added. It runs within seconds.")
    return _back(request, pk)


@acting(Right.CHANGE_WATCHES)
def dismiss_probe(request: HttpRequest, pk: int) -> HttpResponse:
    """Takes a proposal away for good."""
    watch, key = get_object_or_404(Watch, pk=pk), request.POST.get("key", "")
    try:
        found = proposals.dismiss(watch, key, by=request.user.get_username())
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(request, f"The probe of {found.service} is not proposed any more.")
    return _back(request, pk)


def _back(request: HttpRequest, watch: int) -> HttpResponse:
    match request.POST.get("back"):
        case "start":
            return redirect("web:start")
        case "watch":
            return redirect("web:watch", watch)
    return redirect("web:probes", watch)


@acting(Right.RUN)
def run_probe(request: HttpRequest, pk: int) -> HttpResponse:
    probe = get_object_or_404(Probe, pk=pk)
    if probe.kind == Probe.Kind.HEARTBEAT:
        messages.warning(request, "A heartbeat is called, not run.")
    else:
        manage.ask_for_run(probe)
        messages.success(request, f"{probe.name} runs within seconds. Load the page again then.")
    return redirect("web:probes", probe.watch_id)


@acting(Right.HANDLE_INCIDENTS)
def mute_probe(request: HttpRequest, pk: int) -> HttpResponse:
    """Mutes a probe for a time; 0 ends it."""
    probe = get_object_or_404(Probe, pk=pk)
    try:
        manage.mute(probe, manage.seconds_in(request.POST.get("for", "")))
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        muted = "is muted" if probe.is_muted else "is no longer muted"
        note_changed(request.user, probe, f"The probe {muted}.")
        messages.success(request, f"{probe.name} {muted}.")
    return redirect("web:probes", probe.watch_id)


@acting(Right.CHANGE_WATCHES)
def remove_probe(request: HttpRequest, pk: int) -> HttpResponse:
    probe = get_object_or_404(Probe, pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was removed: tick the box to confirm.")
        return redirect("web:probes", probe.watch_id)
    note_removed(request.user, probe)
    manage.remove(probe)
    messages.success(request, f"The probe {probe.name} was removed with its history.")
    return redirect("web:probes", probe.watch_id)


@acting(Right.HANDLE_INCIDENTS)
def start_maintenance(request: HttpRequest, pk: int) -> HttpResponse:
    watch, duration = get_object_or_404(Watch, pk=pk), request.POST.get("for", "").strip()
    try:
        window = manage.start_maintenance(
            watch,
            service=request.POST.get("service", ""),
            starts_at=manage.moment_in(request.POST.get("at", "")),
            seconds=manage.seconds_in(duration) if duration else None,
            is_weekly=request.POST.get("weekly") == "on",
            reason=request.POST.get("reason", ""),
            by=request.user,  # type: ignore[arg-type]
        )
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        note_added(request.user, window)
        told = f"{watch.name} is in maintenance: failures start nothing."
        if not window.holds_now:
            told = f"Maintenance of {watch.name} is planned from {moment_text(window.starts_at)}."
        messages.success(request, told)
    return redirect("web:probes", pk)


@acting(Right.HANDLE_INCIDENTS)
def end_maintenance(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends what holds now, or removes the window that the form names."""
    watch, number = get_object_or_404(Watch, pk=pk), request.POST.get("window", "")
    try:
        if number.isascii() and number.isdecimal() and len(number) < 19:
            note_changed(
                request.user, manage.cancel_maintenance(watch, int(number)), "Removed the window."
            )
            messages.success(request, f"The window of {watch.name} was removed.")
            return redirect("web:probes", pk)
        for window in manage.end_maintenance(watch):
            note_changed(request.user, window, "Ended.")
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(request, f"The maintenance of {watch.name} has ended.")
    return redirect("web:probes", pk)


def _row(
    probe: Probe,
    sums: Mapping[tuple[int, str, datetime], ProbeSum],
    days: Sequence[datetime],
    fives: Sequence[datetime],
) -> ProbeRow:
    of_days = [sums.get((probe.pk, ProbeSum.Period.DAY, at)) for at in days]
    of_hour = [sums.get((probe.pk, ProbeSum.Period.FIVE_MINUTES, at)) for at in fives]
    runs = sum(one.runs for one in of_days if one)
    failed = sum(one.failed for one in of_days if one)
    latency = percentile(added(one.histogram for one in of_hour if one), 0.5)
    return ProbeRow(
        probe=probe,
        days=tuple(map(mark_of, days, of_days)),
        hour=tuple(map(mark_of, fives, of_hour)),
        uptime=100 * (runs - failed) / runs if runs else None,
        latency_ms=None if latency is None else latency * 1000,
        line=latency_line([percentile(one.histogram, 0.5) if one else None for one in of_hour]),
    )


def mark_of(at: datetime, found: ProbeSum | None) -> BarMark:
    """Describes one period. Pure."""
    uptime = found.uptime if found else None
    if found is None or uptime is None:
        words = "in maintenance" if found and found.planned else "no result"
        return BarMark(at=at, look="none", words=words)
    look = "good" if found.failed == 0 else "warn" if uptime >= ALMOST else "bad"
    return BarMark(at=at, look=look, words=f"{uptime:.1%} of {found.runs} good")


def latency_line(seconds: Sequence[float | None]) -> str:
    """Returns the points of a line; periods without a latency are left out. Pure."""
    known = [value for value in seconds if value is not None]
    if len(known) < 2:
        return ""
    highest, step = max(known) or 1.0, CHART_WIDTH / max(1, len(seconds) - 1)
    return " ".join(
        f"{number * step:.1f},{CHART_HEIGHT - 2 - value / highest * (CHART_HEIGHT - 4):.1f}"
        for number, value in enumerate(seconds)
        if value is not None
    )


@login_not_required
@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def heartbeat(request: HttpRequest, token: str, part: str = "") -> HttpResponse:
    """Stores the call of a heartbeat; the worker makes something of it within seconds."""
    number = Probe.objects.filter(token=token, kind=Probe.Kind.HEARTBEAT).values_list("pk").first()
    if number is None:
        return _plain("There is no heartbeat at this address.", 404)
    try:
        kind, exit_code = ping_of(part)
    except NotAPing:
        return _plain("Use the address itself, /start, /fail or an exit code from 0 to 255.", 400)
    now = timezone.now()
    pings = HeartbeatPing.objects.filter(probe=number[0], kind=kind)
    last = pings.order_by("-pk").values_list("at", flat=True).first()
    if last is None or not timedelta(0) <= now - last < ONE_IN:
        body = request.read(HeartbeatPing.LONGEST_BODY).decode(errors="replace")
        HeartbeatPing.objects.create(
            probe_id=number[0], kind=kind, exit_code=exit_code, body=redacted(body), at=now
        )
    return _plain("OK", 200)


def _plain(text: str, status: int) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
