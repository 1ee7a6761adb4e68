"""Decides what the alerts of deliveries lead to: pure functions over what is known of each problem.

Times are those of our own clock: a sender that repeats a firing alert repeats its old start, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from escalation.alerts.parsers import ParsedAlert

REPLAY_WINDOW = timedelta(minutes=5)
"""The same body from the same source within this time is the same delivery."""
OVERTAKEN_WINDOW = timedelta(minutes=5)
"""A firing alert that comes this soon after its resolution, with the same start, was overtaken."""
SETTLING_TIME = timedelta(minutes=10)
"""Time after the end of an incident in which its source may still say that the problem fires."""
NOTE_EVERY = timedelta(minutes=10)
"""A repeated alert adds one entry to the history of its incident in this time."""
STORM_WINDOW = timedelta(minutes=10)
STORM_SIZE = 10
"""New problems of one watch within the window; with more of them all new ones share an incident."""


class Verdict(StrEnum):
    """Meaning of one alert of a delivery."""

    NEW = "new"
    """A problem that was not known, or that had ended."""
    MEMBER = "new member"
    """A new problem of a service that has an open incident."""
    WORSE = "worse"
    STILL_FIRING = "still firing"
    """The incident was resolved, and the source says after a while that the problem goes on."""
    REPEAT = "repeat"
    RESOLVED = "resolved"
    NOT_KNOWN = "resolved, not known"
    """The end of a problem that never fired here."""
    STALE = "stale"
    """Overtaken: its resolution has arrived already."""


RUNS = frozenset({Verdict.NEW, Verdict.STILL_FIRING})
RUNS_AGAIN = frozenset({Verdict.MEMBER, Verdict.WORSE})
"""Verdicts that start a cycle only if the source says so (`Source.runs_again`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAlert:
    """Stored facts of a problem."""

    is_firing: bool
    severity: int
    starts_at: datetime | None = None
    resolved_at: datetime | None = None
    has_incident: bool = False
    incident_ended_at: datetime | None = None
    """None if the incident is open, or was never opened."""


def judge(
    alert: ParsedAlert, known: KnownAlert | None, now: datetime, *, cause_is_open: bool = False
) -> Verdict:
    """Return the verdict. `cause_is_open`: the service has an unresolved incident."""
    if not alert.is_firing:
        return Verdict.RESOLVED if known is not None and known.is_firing else Verdict.NOT_KNOWN
    if known is None or not known.is_firing or not known.has_incident:
        if known is not None and not known.is_firing and _is_overtaken(alert, known, now):
            return Verdict.STALE
        return Verdict.MEMBER if cause_is_open else Verdict.NEW
    if known.incident_ended_at is not None:
        has_settled = now - known.incident_ended_at > SETTLING_TIME
        return Verdict.STILL_FIRING if has_settled else Verdict.REPEAT
    return Verdict.WORSE if alert.severity > known.severity else Verdict.REPEAT


def _is_overtaken(alert: ParsedAlert, known: KnownAlert, now: datetime) -> bool:
    if alert.starts_at is None or alert.starts_at != known.starts_at or known.resolved_at is None:
        return False
    return now - known.resolved_at <= OVERTAKEN_WINDOW


def is_replay(identity: str, received_at: datetime, before: tuple[str, datetime] | None) -> bool:
    """Return True for the same body again. `before`: the last delivery of the source that was no
    replay. Another body in between may have changed what this one repeats."""
    if before is None:
        return False
    last, at = before
    return last == identity and received_at - at <= REPLAY_WINDOW


def starts_cycle(verdict: Verdict, *, runs_again: bool) -> bool:
    return verdict in RUNS or (runs_again and verdict in RUNS_AGAIN)


def is_storm(new_causes: int, opened_lately: int) -> bool:
    """Return True if new problems of a watch share one incident instead of opening their own."""
    return new_causes > 0 and new_causes + opened_lately > STORM_SIZE


def routed(labels: Mapping[str, str], routes: Iterable[tuple[str, str, str]]) -> str:
    """Return the name of the watch of the first route that matches the labels, or nothing.

    A route is a label, its value and a watch. The value `*` stands for every value.
    """
    for label, value, watch in routes:
        if label in labels and value in ("*", labels[label]):
            return watch
    return ""


def read_routes(text: str) -> list[tuple[str, str, str]]:
    """Return the routes of lines like `team=web shop`. Raise ValueError for another line."""
    routes = []
    for line in filter(None, map(str.strip, text.splitlines())):
        matcher, _, watch = line.partition(" ")
        label, is_given, value = matcher.partition("=")
        if not (label and is_given and value and watch.strip()):
            raise ValueError(
                f"`{line}` is no route. Write a label, =, its value, a space and the name of a "
                "watch, like `team=web shop`."
            )
        routes.append((label, value, watch.strip()))
    return routes
