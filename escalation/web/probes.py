"""Probes on the page of a watch, their actions, and the address of heartbeats."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from escalation.probes.results import NotAPing, ping_of
from sessions_app.models import HeartbeatPing, Probe
from sessions_app.redaction.redact import redacted

ONE_IN = timedelta(seconds=1)
"""Calls of one kind within this time count as one, so that a flood fills no disk."""


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
