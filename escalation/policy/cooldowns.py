"""How often a service may be restarted or redeployed, from what was done and not from what is said.

Pure: the record is handed in. A change counts from the moment in which the gate let it run, whether
it helped or not, until its window is over or two healthy rounds of the service have come after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from escalation.policy.effects import EVERYTHING, Effect, service_behind
from escalation.report import HEALTHY, Report
from escalation.tiers import HIGHEST_TIER
from sessions_app.models import Change, Watch

Kind = Change.Kind
REMEDIES: dict[int, tuple[str, ...]] = {
    2: (Kind.RESTART,),
    HIGHEST_TIER: (Kind.RESTART, Kind.REDEPLOY),
}
"""What a tier could do to a service, of what has a cooldown."""
DONE: dict[str, str] = {Kind.RESTART: "restarted", Kind.REDEPLOY: "redeployed"}
INSTEAD = "do not try again, ask for a person in your report"
UNCOUNTED = (
    "Restarts and redeployments are counted, and nobody can count them in a loop, a function or "
    "behind xargs: run each by itself, once."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    allowed: int
    """0 is never."""
    hours: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A change on record that still counts."""

    kind: str
    service: str
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """A cooldown that stops something."""

    service: str
    reason: str


Limits = dict[str, Limit]


def limits_of(watch: Watch | None) -> Limits:
    """A drill has no watch, and the limits of a new one."""
    watch = watch or Watch()
    return {
        Kind.RESTART: Limit(allowed=watch.restarts_allowed, hours=watch.restart_hours),
        Kind.REDEPLOY: Limit(allowed=watch.redeployments_allowed, hours=watch.redeployment_hours),
    }


def used(kind: str, service: str, record: Iterable[Done], limits: Limits, now: datetime) -> int:
    """How often within the window. A clock that was set back makes nothing older: what lies in the
    future counts. What was done to everything was done to each."""
    since = now - timedelta(hours=limits[kind].hours)
    counts = Counter(done.service for done in record if done.kind == kind and done.at > since)
    to_all = counts.pop(EVERYTHING, 0)
    if service == EVERYTHING:
        return to_all + max(counts.values(), default=0)
    return to_all + counts[service]


def left(kind: str, service: str, record: Iterable[Done], limits: Limits, now: datetime) -> int:
    return max(0, limits[kind].allowed - used(kind, service, record, limits, now))


def objection(
    effects: Sequence[Effect],
    may_repeat: bool,
    record: Iterable[Done],
    limits: Limits,
    now: datetime,
) -> Reached | None:
    """Why a command may not run now. Its own effects count one after another."""
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
    """Why a tier is not started for these services: all that it could do to them was tried.

    Nothing tried is no reason, even where nothing is allowed: a tier may look and think as well.
    """
    named = sorted({service_behind(service) for service in services} - {""})
    remedies = [(kind, service) for service in named for kind in REMEDIES.get(tier, ())]
    if not remedies:
        return None
    for kind, service in remedies:
        if used(kind, service, record, limits, now) < max(1, limits[kind].allowed):
            return None
    told = [_in_words(kind, service, record, limits, now) for kind, service in remedies]
    return Reached(service=named[0], reason="; ".join(told))


def healthy_in(reports: Iterable[Report]) -> set[str]:
    """The services of a round that every report which names them found healthy."""
    seen: dict[str, bool] = {}
    for report in reports:
        for service in report["services"]:
            name = service_behind(service["name"])
            seen[name] = seen.get(name, True) and service["status"] == HEALTHY
    return {name for name, healthy in seen.items() if healthy}


def recovered(last: Iterable[Report], before: Iterable[Report]) -> set[str]:
    """Whose cooldown is over: healthy in two rounds in a row."""
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
