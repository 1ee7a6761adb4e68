"""Cooldowns: how often a service may be restarted or redeployed.

They count recorded commands, not reports. A change counts from the moment in which the command
policy allowed it, until its window is over or two cycles in a row found the service healthy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import cast

from django.db.models import CharField, Exists, OuterRef, Q, QuerySet, Value
from django.urls import reverse
from django.utils import timezone

from escalation.command_policy.understanding import EVERYTHING, CommandEffect
from escalation.notifications.outbox import notify
from escalation.report import HEALTHY, Report
from sessions_app.history.services import one_spelling
from sessions_app.models import Change, Cycle, Incident, Notification, RemedyRun, Session, Watch
from sessions_app.models.session import SessionQuerySet
from sessions_app.redaction.redact import redacted
from sessions_app.tiers import FULL, SAFE

Kind = Change.Kind
_CONTAINER = re.compile(r"[^-_].*?[-_](.+)[-_]\d{1,3}")
"""Container name of compose: project, service, number."""
_POD = re.compile(r"(.+)-[a-f0-9]{8,10}-[a-z0-9]{5}")


def effects_of(
    effects: Iterable[CommandEffect], host_of: Callable[[str], str] = lambda name: ""
) -> tuple[CommandEffect, ...]:
    """Returns effects of a decision with the names of their services as reports have them, and the
    keys of their hosts."""
    return tuple(
        replace(
            effect,
            service=redacted(service_behind(effect.service))
            if effect.service not in ("", EVERYTHING)
            else effect.service,
            host=host_of(effect.host) if effect.host else "",
        )
        for effect in effects
    )


def service_behind(name: str) -> str:
    """Returns the service name in a report: `web` for `/shop-web-1` and `deploy/Web`."""
    plain = name.strip().casefold().rpartition("/")[2].removesuffix(".service")
    found = _POD.fullmatch(plain) or _CONTAINER.fullmatch(plain)
    return one_spelling(found[1] if found else plain)


REMEDIES: dict[str, int] = {Kind.RESTART: SAFE, Kind.REDEPLOY: FULL}
"""Kinds with a cooldown, and the lowest tier that may apply each."""
DONE: dict[str, str] = {Kind.RESTART: "restarted", Kind.REDEPLOY: "redeployed"}
INSTEAD = "do not try again, ask for a person in your report"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    allowed: int
    """0: never."""
    hours: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A recorded change that still counts."""

    kind: str
    service: str
    at: datetime
    host: str = ""
    """Its keys, as `ssh_host` returns them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """A cooldown that stops a command or a tier."""

    service: str
    reason: str


Limits = dict[str, Limit]


def limits_of(watch: Watch | None) -> Limits:
    """Returns the limits of a watch. A drill has the defaults."""
    watch = watch or Watch()
    return {
        Kind.RESTART: Limit(allowed=watch.restarts_allowed, hours=watch.restart_hours),
        Kind.REDEPLOY: Limit(allowed=watch.redeployments_allowed, hours=watch.redeployment_hours),
    }


def may_be_one(host: str, other: str) -> bool:
    """Tests whether two hosts may be the same: they share a key, or no type of key.

    A host has many names and addresses, and one key of each type. What is unknown, and this host,
    may be any.
    """
    keys, others = _by_type(host), _by_type(other)
    shared = keys.keys() & others.keys()
    return not shared or any(keys[kind] & others[kind] for kind in shared)


def _by_type(host: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for word in host.split():
        kind, _colon, digest = word.partition(":")
        found.setdefault(kind, set()).add(digest)
    return found


def used(
    kind: str,
    service: str,
    record: Iterable[Done],
    limits: Limits,
    now: datetime,
    host: str = "",
) -> int:
    """Counts the changes within the window on what may be the same host. A change in the future
    counts: the clock was set back.

    A restart of everything counts for each service. A redeployment of everything does not, because
    `docker compose up` recreates only what has changed: it counts for the next one of everything.
    """
    since = now - timedelta(hours=limits[kind].hours)
    counts = Counter(
        done.service
        for done in record
        if done.kind == kind and done.at > since and may_be_one(done.host, host)
    )
    to_all = counts.pop(EVERYTHING, 0)
    if service == EVERYTHING:
        return to_all + max(counts.values(), default=0)
    return counts[service] + (to_all if kind == Kind.RESTART else 0)


def left(
    kind: str,
    service: str,
    record: Iterable[Done],
    limits: Limits,
    now: datetime,
    host: str = "",
) -> int:
    return max(0, limits[kind].allowed - used(kind, service, record, limits, now, host))


def objection(
    effects: Sequence[CommandEffect],
    record: Iterable[Done],
    limits: Limits,
    now: datetime,
) -> Reached | None:
    """Returns the cooldown that stops a vector. Its own effects count one after another."""
    so_far = list(record)
    for effect in effects:
        if effect.kind not in limits:
            continue
        kind, service = effect.kind, effect.service
        if not left(kind, service, so_far, limits, now, effect.host):
            why = _in_words(kind, service, so_far, limits, now, effect.host)
            return Reached(service=service, reason=f"{why}: {INSTEAD}.")
        so_far.append(Done(kind=kind, service=service, at=now, host=effect.host))
    return None


def tier_objection(
    tier: int, services: Iterable[str], record: Sequence[Done], limits: Limits, now: datetime
) -> Reached | None:
    """Returns the cooldown that stops a tier: all its remedies for these services are used up.

    A remedy that was never tried does not stop it, even if none is allowed: the tier may observe.
    Reports name no hosts, so a service of several hosts stops it if it is used up on all of them.
    """
    named = sorted({service_behind(service) for service in services} - {""})
    remedies = [(kind, service) for service in named for kind in _remedies_of(tier)]
    if not remedies:
        return None
    for kind, service in remedies:
        hosts = {done.host for done in record if done.service == service} or {""}
        fewest = min(used(kind, service, record, limits, now, host) for host in hosts)
        if fewest < max(1, limits[kind].allowed):
            return None
    told = [_in_words(kind, service, record, limits, now) for kind, service in remedies]
    return Reached(service=named[0], reason="; ".join(told))


def _remedies_of(tier: int) -> list[str]:
    """Returns the kinds with a cooldown that a tier may apply."""
    return [kind for kind, lowest in REMEDIES.items() if tier >= lowest]


def healthy_in(reports: Iterable[Report]) -> set[str]:
    """Returns the services that are healthy in every report that names them."""
    seen: dict[str, bool] = {}
    for report in reports:
        for service in report["services"]:
            name = service_behind(service["name"])
            seen[name] = seen.get(name, True) and service["status"] == HEALTHY
    return {name for name, healthy in seen.items() if healthy}


def recovered(last: Iterable[Report], before: Iterable[Report]) -> set[str]:
    """Returns the services that were healthy in two cycles in a row."""
    return healthy_in(last) & healthy_in(before)


def _in_words(
    kind: str,
    service: str,
    record: Iterable[Done],
    limits: Limits,
    now: datetime,
    host: str = "",
) -> str:
    name = "something here" if service == EVERYTHING else service
    if not limits[kind].allowed:
        return f"{name} may never be {DONE[kind]} in this watch"
    times = used(kind, service, record, limits, now, host)
    often = {1: "once", 2: "twice"}.get(times, f"{times} times")
    return f"{name} was {DONE[kind]} {often} in the last {limits[kind].hours} h"


def limits_for(cycle: Cycle) -> Limits:
    """Returns the current limits of the watch."""
    return limits_of(Watch.objects.filter(cycles=cycle).first())


def counting(cycle: Cycle, limits: Limits, now: datetime) -> list[Done]:
    """Returns the changes that count for this cycle: those of its watch, or of the drill."""
    return _counted(_changes_of(cycle), cycle.watch_id, limits, now)


def counting_for(watch: Watch, limits: Limits, now: datetime) -> list[Done]:
    """Returns the changes of a watch that count."""
    return _counted(Change.objects.filter(watch=watch), watch.pk, limits, now)


def _counted(
    changes: QuerySet[Change], watch: int | None, limits: Limits, now: datetime
) -> list[Done]:
    """Returns commands of sessions, and remedies that a person or Tier 0 ran."""
    since = now - timedelta(hours=max(limit.hours for limit in limits.values()))
    rows = changes.filter(kind__in=list(limits), is_cleared=False, at__gt=since)
    found = rows.order_by().values_list("kind", "service", "at", "host")
    if watch is not None:
        runs = RemedyRun.objects.filter(watch=watch, kind__in=list(limits), asked_at__gt=since)
        runs = runs.exclude(state=RemedyRun.State.REFUSED).order_by()
        of_this_host = runs.values_list("kind", "service", "asked_at", Value("", CharField()))
        found = found.union(of_this_host, all=True)
    return sorted(
        (Done(kind=kind, service=service, at=at, host=host) for kind, service, at, host in found),
        key=lambda done: done.at,
    )


def objection_to_tier(cycle: Cycle, tier: int, report: Report) -> Reached | None:
    """Returns the cooldown that stops the next tier."""
    now, limits = timezone.now(), limits_for(cycle)
    return tier_objection(tier, concerned(report), counting(cycle, limits, now), limits, now)


def concerned(report: Report) -> list[str]:
    """Returns the services of an escalation: as named, or all unhealthy ones."""
    unwell = [service["name"] for service in report["services"] if service["status"] != HEALTHY]
    return report["escalation"]["services"] or unwell


def tell_reached(session: Session, reached: Reached) -> None:
    """Notifies once for a session and a service, never for a drill."""
    if session.is_drill:
        return
    path = reverse("web:session", args=[session.pk])
    title = f"A cooldown stopped a remedy for {reached.service} ({session.cycle.subject})"
    told = Notification.objects.filter(kind=Notification.Kind.COOLDOWN, path=path, title=title)
    if not told.exists():
        notify(
            Notification.Kind.COOLDOWN,
            title,
            severity=Incident.Severity.WARNING,
            text=reached.reason,
            watch=session.cycle.watch,
            cycle=session.cycle,
            path=path,
        )


def clear_recovered(cycle: Cycle) -> None:
    """Clears the changes of services that two cycles in a row found healthy."""
    waiting = Change.objects.filter(watch=cycle.watch_id, is_cleared=False)
    if cycle.watch_id is None or not waiting.exists():
        return
    before = (
        Cycle.objects.filter(watch=cycle.watch_id, pk__lt=cycle.pk, state=Cycle.State.FINISHED)
        .filter(Exists(_reported().filter(cycle=OuterRef("pk"))))
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
    found = _reported().filter(cycle=cycle).values_list("report", flat=True)
    return [cast(Report, report) for report in found]


def _reported() -> SessionQuerySet:
    """Returns the sessions with a report that counts as evidence."""
    return Session.objects.evidence().filter(report__isnull=False)


def _changes_of(cycle: Cycle) -> QuerySet[Change]:
    of_cycle = Q(session__cycle=cycle)
    return Change.objects.filter(Q(watch=cycle.watch_id) if cycle.watch_id else of_cycle)
