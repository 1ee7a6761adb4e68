"""Who hears what, and when: pure.

One message for one happening, until they come too fast or at an hour that shall be quiet: then they
are gathered, and one summary tells them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import NamedTuple

from sessions_app.models import Happening, Incident

Kind = Happening.Kind

MOST_A_MINUTE = 5
"""Single messages to one target; what comes beyond that is a storm."""
STORM_WAIT = timedelta(minutes=1)
# Every round may see them again: said once, they are said.
ONCE_IN_A_ROW = {
    Kind.INCIDENT_OPENED,
    Kind.INCIDENT_RESOLVED,
    Kind.FIX_VERIFIED,
    Kind.COOLDOWN,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """Something that happened, as far as it matters for who hears it."""

    number: int
    kind: str
    severity: int
    watch: int | None = None
    incident: int | None = None
    is_drill: bool = False
    is_over: bool = False
    """It asked for an answer, and has one."""


class Said(NamedTuple):
    """What a target was last told of an incident."""

    kind: str = ""
    severity: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Listener:
    """A target, as far as it matters for what it hears."""

    least_severity: int = Incident.Severity.WARNING
    watches: frozenset[int] = frozenset()
    quiet_from: time | None = None
    quiet_until: time | None = None
    lately: int = 0
    """Single messages that it got within the last minute."""
    last_said: Mapping[int, Said] = ()  # type: ignore[assignment]
    """What it was last told of each incident."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One message: what it tells, not before when."""

    told: tuple[Told, ...]
    due_at: datetime
    is_summary: bool = False


def batches(listener: Listener, happened: Iterable[Told], now: datetime) -> list[Batch]:
    """`now` is local time: quiet hours are."""
    last_said, lately = dict(listener.last_said), listener.lately
    quiet_end = end_of_quiet(listener.quiet_from, listener.quiet_until, now)
    singles: list[Batch] = []
    held: list[Told] = []
    storm: list[Told] = []
    for told in happened:
        if why_not(listener, told, last_said.get(told.incident or 0, Said())):
            continue
        if told.incident is not None:
            last_said[told.incident] = Said(told.kind, told.severity)
        if quiet_end is not None and told.severity < Incident.Severity.CRITICAL:
            held.append(told)
        elif lately >= MOST_A_MINUTE:
            storm.append(told)
        else:
            lately += 1
            singles.append(Batch((told,), now))
    if quiet_end is not None and held:
        singles.append(Batch(tuple(held), quiet_end, is_summary=True))
    if storm:
        singles.append(Batch(tuple(storm), now + STORM_WAIT, is_summary=True))
    return singles


def why_not(listener: Listener, told: Told, last_said: Said) -> str:
    """Why this target does not hear it, or nothing. What belongs to no watch is for everybody, and
    what got worse is news."""
    if told.is_drill:
        return "a drill is nobody's trouble"
    if told.is_over:
        return "it is answered already"
    if told.severity < listener.least_severity:
        return "it is less than this target wants to hear"
    if told.watch is not None and listener.watches and told.watch not in listener.watches:
        return "it is another watch's"
    is_same = told.kind == last_said.kind and told.severity <= last_said.severity
    if told.kind in ONCE_IN_A_ROW and is_same:
        return "it was said already"
    return ""


def end_of_quiet(begin: time | None, end: time | None, now: datetime) -> datetime | None:
    """When the quiet hours end that it is now in; None outside. They may pass midnight."""
    if begin is None or end is None or begin == end:
        return None
    clock = now.time()
    passes_midnight = begin > end
    is_quiet = clock >= begin or clock < end if passes_midnight else begin <= clock < end
    if not is_quiet:
        return None
    ends_tomorrow = passes_midnight and clock >= begin
    day = now.date() + timedelta(days=int(ends_tomorrow))
    return datetime.combine(day, end, tzinfo=now.tzinfo)
