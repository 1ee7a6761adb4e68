"""Page of the probes of a watch, and the address of heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.decorators import login_not_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe

from escalation.probes.results import NotAPing, added, percentile, ping_of
from escalation.probes.store import day_of, five_minutes_of
from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right
from sessions_app.models import HeartbeatPing, Probe, ProbeSum, Watch
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


@needs(Right.SEE)
@require_safe
def probes(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    return render(request, "web/probes.html", {"watch": watch, "probes": load_probes(watch)})


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
