"""An incident in a terminal, and as data for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils import timezone

from sessions_app.models import Incident
from sessions_app.models.account_clock import moment_text
from sessions_app.reading.formatting import money
from sessions_app.reading.incident_figures import cost_of, failed_remedies
from sessions_app.reading.incident_text import wish_of
from sessions_app.reading.plain_text import one_line

WIDTH = 100


def list_line(incident: Incident) -> str:
    state = "seems recovered" if incident.seems_recovered else incident.get_state_display()
    return (
        f"{incident.pk:<6} {incident.get_severity_display():9} {state:22} "
        f"{incident.subject}: {incident.title}"
    )


def show_lines(incident: Incident) -> Iterator[str]:
    cost = cost_of(incident)
    first, last = map(moment_text, (incident.first_seen_at, incident.last_seen_at))
    yield f"Incident {incident.pk}: {incident.title} ({incident.subject})"
    yield f"  state         {incident.get_state_display()}, {incident.get_severity_display()}"
    yield f"  wants         {wish_of(incident)}"
    yield f"  seen          {incident.times_seen} times, from {first} to {last}"
    yield f"  who has it    {incident.owner.get_username() if incident.owner else 'nobody'}"
    yield f"  cost          {money(cost.cost_usd)} in {cost.runs} runs"
    for number, line in enumerate(incident.detail.splitlines()):
        yield f"  {'detail' if number == 0 else '':13} {line}"
    yield "What happened:"
    for event in incident.events.select_related("by"):
        who = f" by {event.by.get_username()}" if event.by else ""
        words = f": {one_line(event.text, WIDTH)}" if event.text else ""
        at = timezone.localtime(event.at)
        yield f"  {at:%Y-%m-%d %H:%M} {event.get_kind_display()}{who}{words}"


def incident_as_data(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.pk,
        "title": incident.title,
        "kind": incident.kind,
        "watch": incident.watch.name if incident.watch else incident.watch_name or None,
        "drill": incident.drill or None,
        "cause": incident.cause,
        "severity": incident.get_severity_display(),
        "state": incident.state,
        "seems_recovered": incident.seems_recovered,
        "wants": wish_of(incident),
        "detail": incident.detail,
        "first_seen_at": incident.first_seen_at,
        "last_seen_at": incident.last_seen_at,
        "times_seen": incident.times_seen,
        "times_reopened": incident.times_reopened,
        "owner": incident.owner.get_username() if incident.owner else None,
        "acknowledged_at": incident.acknowledged_at,
        "snoozed_until": incident.snoozed_until,
        "verify_at": incident.verify_at,
        "remedy": incident.remedy or None,
        "resolved_at": incident.resolved_at,
        "resolved_as": incident.resolved_as or None,
    }


def incident_in_full(incident: Incident) -> dict[str, Any]:
    events, cost = list(incident.events.select_related("by")), cost_of(incident)
    return {
        **incident_as_data(incident),
        "cycles": list(incident.cycles.order_by("pk").values_list("pk", flat=True)),
        "cost_usd": float(cost.cost_usd),
        "runs": cost.runs,
        "failed_remedies": list(failed_remedies(events)),
        "events": [
            {
                "kind": event.kind,
                "at": event.at,
                "by": event.by.get_username() if event.by else None,
                "text": event.text,
                "cycle": event.cycle_id,
                "session": event.session_id,
            }
            for event in events
        ],
    }
