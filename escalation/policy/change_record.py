"""The record of changes, read for cooldowns and cleared when a service has recovered."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import cast

from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone

from escalation.policy.cooldowns import (
    Done,
    Limits,
    Reached,
    healthy_in,
    limits_of,
    recovered,
    tier_objection,
)
from escalation.policy.effects import EVERYTHING
from escalation.report import HEALTHY, Report
from escalation.word.happenings import tell
from sessions_app.models import Change, Cycle, Happening, Incident, Session, Watch


def limits_for(cycle: Cycle) -> Limits:
    """As the watch has them now."""
    return limits_of(Watch.objects.filter(cycles=cycle).first())


def counting(cycle: Cycle, limits: Limits, now: datetime) -> list[Done]:
    """What still counts for a run of this cycle: all that its watch had done, or a drill itself."""
    longest = max(limit.hours for limit in limits.values())
    rows = _changes_of(cycle).filter(
        kind__in=list(limits), is_cleared=False, at__gt=now - timedelta(hours=longest)
    )
    found = rows.order_by("at").values_list("kind", "service", "at")
    return [Done(kind=kind, service=service, at=at) for kind, service, at in found]


def objection_to_tier(cycle: Cycle, tier: int, report: Report) -> Reached | None:
    """Why the next tier is not started: what it could do was tried often enough."""
    now, limits = timezone.now(), limits_for(cycle)
    return tier_objection(tier, concerned(report), counting(cycle, limits, now), limits, now)


def concerned(report: Report) -> list[str]:
    """The services that an escalation is asked for: as named, or all that are not well."""
    unwell = [service["name"] for service in report["services"] if service["status"] != HEALTHY]
    return report["escalation"]["services"] or unwell


def tell_reached(session: Session, reached: Reached) -> None:
    """Never for a drill. Once for a run and a service: the happening names both."""
    if session.is_drill:
        return
    path = reverse("sessions_app:session", args=[session.pk])
    title = f"A cooldown stopped a remedy for {reached.service} ({session.cycle.subject})"[:200]
    told = Happening.objects.filter(kind=Happening.Kind.COOLDOWN, path=path, title=title)
    if not told.exists():
        tell(
            Happening.Kind.COOLDOWN,
            title,
            severity=Incident.Severity.WARNING,
            text=reached.reason,
            watch=session.cycle.watch,
            path=path,
        )


def clear_recovered(cycle: Cycle) -> None:
    """Two rounds in a row found a service healthy: what was done to it before counts no more."""
    waiting = Change.objects.filter(watch=cycle.watch_id, is_cleared=False)
    if cycle.watch_id is None or not waiting.exists():
        return
    before = (
        Cycle.objects.filter(watch=cycle.watch_id, pk__lt=cycle.pk, state=Cycle.State.FINISHED)
        .filter(sessions__report__isnull=False)
        .order_by("-pk")
        .first()
    )
    if before is None:
        return
    services = _recovered(_reports_of(cycle), _reports_of(before))
    waiting.filter(service__in=services, session__cycle__lt=before.pk).update(is_cleared=True)


def _recovered(last: list[Report], before: list[Report]) -> set[str]:
    services = recovered(last, before)
    named = {service["name"] for report in (*last, *before) for service in report["services"]}
    everything = len(healthy_in([*last, *before])) == len(healthy_in(_all_well(named)))
    return services | {EVERYTHING} if services and everything else services


def _all_well(names: Iterable[str]) -> list[Report]:
    services = [{"name": name, "status": "healthy"} for name in names]
    return [cast(Report, {"services": services})]


def _reports_of(cycle: Cycle) -> list[Report]:
    found = cycle.sessions.filter(report__isnull=False).values_list("report", flat=True)
    return [cast(Report, report) for report in found]


def _changes_of(cycle: Cycle) -> QuerySet[Change]:
    of_cycle = Q(session__cycle=cycle)
    return Change.objects.filter(Q(watch=cycle.watch_id) if cycle.watch_id else of_cycle)
