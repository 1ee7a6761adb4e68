"""Cooldowns: how often a service may be restarted or redeployed.

They count recorded commands, not reports. A change counts from the moment in which the command
policy allowed it, until its window is over or two cycles in a row found the service healthy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse
from django.utils import timezone

from escalation.notifications.notify import notify
from escalation.report import HEALTHY, Report
from sessions_app.history.services import one_spelling
from sessions_app.models import Change, Cycle, Incident, Notification, Session, Watch
from sessions_app.models.session import SessionQuerySet
from sessions_app.redaction.redact import redacted
from sessions_app.tiers import FULL, SAFE

# The command policy describes a change as "docker restart web". A verb that is in none of these
# tables has no cooldown.

Kind = Change.Kind
EVERYTHING = "*"
"""All services: none was named, or only the shell knows the name."""
COMPUTED = "…"

RESTARTING = frozenset(
    {
        *("restart", "start", "kill", "unpause", "try-restart", "condrestart", "force-reload"),
        *("reload-or-restart", "try-reload-or-restart", "reload-or-try-restart"),
    }
)
COMPOSING = frozenset({"up", "create"})
HELM = frozenset({"upgrade", "install", "rollback"})
KUBE_RESTARTS = frozenset({"rollout restart", "delete pod", "delete pods", "delete po", "scale"})
KUBE_DEPLOYS = frozenset(
    ("rollout undo", "set image", "set env", "apply", "replace", "patch", "create", "edit")
)
ANSIBLE_SERVICES = frozenset({"service", "systemd", "systemd_service", "sysvinit", "openrc"})
ANSIBLE_RESTARTS = frozenset({"restarted", "started"})
# The word after one of these options is its value, not a service.
WITH_VALUE = frozenset(
    {
        *("-t", "--time", "--timeout", "-s", "--signal", "--kill-who", "--kill-whom", "--scale"),
        *("--pull", "--wait-timeout", "--exit-code-from", "--attach", "--no-attach", "--replicas"),
        *("--selector", "--image", "--limit", "-i", "--inventory", "-l", "-e", "--extra-vars"),
        *("--tags", "--namespace", "-c", "--compose-file", "--env", "--volume", "--user"),
    }
)
_CONTAINER = re.compile(r"[^-_].*?[-_](.+)[-_]\d{1,3}")
"""Container name of compose: project, service, number."""
_POD = re.compile(r"(.+)-[a-f0-9]{8,10}-[a-z0-9]{5}")

Read = tuple[str, list[str]]
"""The kind of a change, and the services as they were named."""
OTHER: Read = (Kind.OTHER, [])


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEffect:
    kind: str
    service: str
    """The normalized name; EVERYTHING if none is named, empty for another kind."""
    action: str


def effects_of(changes: Iterable[str]) -> tuple[CommandEffect, ...]:
    """Returns one effect for each service of each change."""
    return tuple(effect for change in changes for effect in _effects(change))


def service_behind(name: str) -> str:
    """Returns the service name in a report: `web` for `/shop-web-1` and `deploy/Web`."""
    plain = name.strip().casefold().rpartition("/")[2].removesuffix(".service")
    found = _POD.fullmatch(plain) or _CONTAINER.fullmatch(plain)
    return one_spelling(found[1] if found else plain)


def is_of_docker(effect: CommandEffect) -> bool:
    return effect.action.startswith("docker ")


def _effects(change: str) -> list[CommandEffect]:
    words = change.split()
    read = READERS.get(words[0] if words else "")
    kind, names = read(words[1:]) if read else OTHER
    if kind == Kind.OTHER:
        return [CommandEffect(kind=kind, service="", action=change)]
    services = [
        EVERYTHING if COMPUTED in name else redacted(service_behind(name)) for name in names
    ]
    return [
        CommandEffect(kind=kind, service=service, action=change)
        for service in services or [EVERYTHING]
    ]


def _docker(words: list[str]) -> Read:
    match words:
        case ["compose", *rest]:
            return _by_verb(rest, COMPOSING)
        case ["service", "update", *rest]:
            return Kind.REDEPLOY, _operands(rest)
        case ["stack", "deploy", *rest]:
            return Kind.REDEPLOY, _operands(rest)[-1:]
        case ["run" | "create", *rest]:
            named = [word for flag, word in _pairs(rest) if flag == "--name"]
            return (Kind.REDEPLOY, named) if named else OTHER
    return _by_verb(words)


def _by_verb(words: list[str], deploying: frozenset[str] = frozenset()) -> Read:
    match words:
        case [verb, *rest] if verb in RESTARTING:
            return Kind.RESTART, _operands(rest)
        case [verb, *rest] if verb in deploying:
            return Kind.REDEPLOY, _operands(rest)
    return OTHER


def _service(words: list[str]) -> Read:
    """Reads `service nginx restart`, where the name comes first."""
    is_restart = len(words) > 1 and words[1] in RESTARTING
    return (Kind.RESTART, words[:1]) if is_restart else OTHER


def _kubectl(words: list[str]) -> Read:
    for length in (2, 1):
        verb, rest = " ".join(words[:length]), words[length:]
        if verb in KUBE_RESTARTS:
            pods = _operands(rest) if verb.startswith("delete") else _kube_names(rest)
            return Kind.RESTART, pods
        if verb in KUBE_DEPLOYS:
            return Kind.REDEPLOY, _kube_names(rest)
    return OTHER


def _kube_names(words: list[str]) -> list[str]:
    """Reads `deployment/web`, `deployment web`, or the name of a file."""
    if files := [word for flag, word in _pairs(words) if flag in ("-f", "--filename", "-k")]:
        return [_stem(name) for name in files]
    operands = [word for word in _operands(words) if "=" not in word]
    with_kind = [word for word in operands if "/" in word]
    return with_kind or operands[1:] or operands


def _helm(words: list[str]) -> Read:
    is_deploy = bool(words) and words[0] in HELM
    return (Kind.REDEPLOY, _operands(words[1:])[:1]) if is_deploy else OTHER


def _playbook(words: list[str]) -> Read:
    return Kind.REDEPLOY, [_stem(word) for word in _operands(words)]


def _ansible(words: list[str]) -> Read:
    """Reads `ansible web -m service -a "name=nginx state=restarted"`."""
    module = next((word for flag, word in _pairs(words) if flag in ("-m", "--module-name")), "")
    said = dict(word.strip("\"'").split("=", 1) for word in words if "=" in word)
    if module.rpartition(".")[2] in ANSIBLE_SERVICES and said.get("state") in ANSIBLE_RESTARTS:
        return Kind.RESTART, [name for key, name in said.items() if key in ("name", "service")]
    return (Kind.RESTART, []) if module.rpartition(".")[2] == "reboot" else OTHER


def _terraform(words: list[str]) -> Read:
    return (Kind.REDEPLOY, ["terraform"]) if words[:1] == ["apply"] else OTHER


def _operands(words: list[str]) -> list[str]:
    before = ["", *words]
    return [
        word
        for flag, word in zip(before, words, strict=False)
        if not word.startswith("-") and flag not in WITH_VALUE
    ]


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    """Returns options with their values, written with a space or with `=`."""
    joined = [word.partition("=") for word in words if word.startswith("-")]
    return [
        *zip(words, words[1:], strict=False),
        *((flag, value) for flag, sign, value in joined if sign),
    ]


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0] or path


READERS: dict[str, Callable[[list[str]], Read]] = {
    "docker": _docker,
    "podman": _docker,
    "systemctl": _by_verb,
    "service": _service,
    "kubectl": _kubectl,
    "helm": _helm,
    "ansible-playbook": _playbook,
    "ansible": _ansible,
    "terraform": _terraform,
    "tofu": _terraform,
}


REMEDIES: dict[str, int] = {Kind.RESTART: SAFE, Kind.REDEPLOY: FULL}
"""Kinds with a cooldown, and the lowest tier that may apply each."""
DONE: dict[str, str] = {Kind.RESTART: "restarted", Kind.REDEPLOY: "redeployed"}
INSTEAD = "do not try again, ask for a person in your report"
UNCOUNTED = (
    "Restarts and redeployments are counted, which is impossible in a loop, a function or behind "
    "xargs: run each one as a single command."
)


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


def used(kind: str, service: str, record: Iterable[Done], limits: Limits, now: datetime) -> int:
    """Counts the changes within the window. A change in the future counts: the clock was set back.
    A change of everything counts for each service."""
    since = now - timedelta(hours=limits[kind].hours)
    counts = Counter(done.service for done in record if done.kind == kind and done.at > since)
    to_all = counts.pop(EVERYTHING, 0)
    if service == EVERYTHING:
        return to_all + max(counts.values(), default=0)
    return to_all + counts[service]


def left(kind: str, service: str, record: Iterable[Done], limits: Limits, now: datetime) -> int:
    return max(0, limits[kind].allowed - used(kind, service, record, limits, now))


def objection(
    effects: Sequence[CommandEffect],
    may_repeat: bool,
    record: Iterable[Done],
    limits: Limits,
    now: datetime,
) -> Reached | None:
    """Returns the cooldown that stops a command. Its own effects count one after another."""
    counted = [effect for effect in effects if effect.kind in limits]
    if counted and may_repeat:
        return Reached(service=counted[0].service, reason=UNCOUNTED)
    so_far = list(record)
    for effect in counted:
        kind, service = effect.kind, effect.service
        if not left(kind, service, so_far, limits, now):
            why = _in_words(kind, service, so_far, limits, now)
            return Reached(service=service, reason=f"{why}: {INSTEAD}.")
        so_far.append(Done(kind=kind, service=service, at=now))
    return None


def tier_objection(
    tier: int, services: Iterable[str], record: Sequence[Done], limits: Limits, now: datetime
) -> Reached | None:
    """Returns the cooldown that stops a tier: all its remedies for these services are used up.

    A remedy that was never tried does not stop it, even if none is allowed: the tier may observe.
    """
    named = sorted({service_behind(service) for service in services} - {""})
    remedies = [(kind, service) for service in named for kind in _remedies_of(tier)]
    if not remedies:
        return None
    for kind, service in remedies:
        if used(kind, service, record, limits, now) < max(1, limits[kind].allowed):
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
    kind: str, service: str, record: Iterable[Done], limits: Limits, now: datetime
) -> str:
    name = "something here" if service == EVERYTHING else service
    if not limits[kind].allowed:
        return f"{name} may never be {DONE[kind]} in this watch"
    times = used(kind, service, record, limits, now)
    often = {1: "once", 2: "twice"}.get(times, f"{times} times")
    return f"{name} was {DONE[kind]} {often} in the last {limits[kind].hours} h"


def limits_for(cycle: Cycle) -> Limits:
    """Returns the current limits of the watch."""
    return limits_of(Watch.objects.filter(cycles=cycle).first())


def counting(cycle: Cycle, limits: Limits, now: datetime) -> list[Done]:
    """Returns the changes that count for this cycle: those of its watch, or of the drill."""
    longest = max(limit.hours for limit in limits.values())
    rows = _changes_of(cycle).filter(
        kind__in=list(limits), is_cleared=False, at__gt=now - timedelta(hours=longest)
    )
    found = rows.order_by("at").values_list("kind", "service", "at")
    return [Done(kind=kind, service=service, at=at) for kind, service, at in found]


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
