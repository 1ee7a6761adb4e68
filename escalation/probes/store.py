"""Reads and writes the probes of this host in batches. The loop calls it from one thread."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, connection
from django.db.models import Count, Field, Max, Q
from django.utils import timezone

from escalation.probes import results
from escalation.probes.results import Result
from escalation.probes.states import ProbeState, Step
from escalation.queue import installation_lock, own_labels
from escalation.supervisor.cycles import wake
from sessions_app.history.services import is_down, one_spelling
from sessions_app.models import (
    HeartbeatPing,
    Maintenance,
    Probe,
    ProbeChange,
    ProbeLease,
    ProbeSum,
    Watch,
)
from sessions_app.models.cycle import Fact
from sessions_app.models.installation import shared_now
from sessions_app.models.watch import may_run, read_host_words
from sessions_app.redaction.redact import redacted

FIVE_MINUTES = timedelta(minutes=5)
MOST_PINGS = 1_000
SUM_FIELDS = ("runs", "failed", "planned", "histogram")


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """Probes that this host runs, and what holds their failures back."""

    probes: tuple[Probe, ...] = ()
    parents: dict[int, tuple[int, ...]] = field(default_factory=dict)
    windows: dict[int, list[Maintenance]] = field(default_factory=dict)
    """Maintenance windows by watch."""

    def in_maintenance(self, probe: Probe, now: datetime) -> bool:
        service = one_spelling(probe.service)
        return any(
            window.holds(now) and (not window.service or one_spelling(window.service) == service)
            for window in self.windows.get(probe.watch_id, ())
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """A result that changed the state of a probe or has to be stored at once."""

    probe: Probe
    result: Result
    step: Step
    at: datetime
    why_held: str = ""


def lease_watches() -> frozenset[int]:
    """Takes or renews the leases of watches whose probes this host may run. Returns their ids."""
    host, now = socket.gethostname(), shared_now()
    labels = own_labels()
    wanted = Watch.objects.filter(Q(probes__isnull=False)).distinct()
    allowed = [row.pk for row in wanted if may_run(read_host_words(row.hosts), labels)]
    leases = ProbeLease.objects.filter(watch__in=allowed)
    free = Q(host=host) | Q(until__lt=now) | Q(until__gt=now + 10 * ProbeLease.LENGTH)
    leases.filter(free).update(host=host, until=now + ProbeLease.LENGTH)
    there = set(leases.values_list("watch_id", flat=True))
    for number in set(allowed) - there:
        try:
            with installation_lock():
                ProbeLease.objects.create(watch_id=number, host=host, until=now + ProbeLease.LENGTH)
        except IntegrityError:
            continue  # another host was faster, or the watch was removed
    return frozenset(leases.filter(host=host).values_list("watch_id", flat=True))


def release_leases() -> None:
    """Lets another host take over at once."""
    ProbeLease.objects.filter(host=socket.gethostname()).delete()


def signature() -> tuple[Any, ...]:
    """Returns a value that differs after every change of probes or maintenance windows."""
    of_probes = Probe.objects.aggregate(
        Count("pk"), Max("changed_at"), Max("run_asked_at"), Max("pk")
    )
    of_windows = Maintenance.objects.aggregate(Count("pk"), Max("pk"), Max("ends_at"))
    return (*of_probes.values(), *of_windows.values())


def load(watches: Iterable[int]) -> Configuration:
    rows = Probe.objects.select_related("watch").filter(watch__in=list(watches))
    parents: dict[int, tuple[int, ...]] = {}
    links = Probe.needs.through.objects.filter(from_probe__watch__in=list(watches))
    for child, parent in links.values_list("from_probe_id", "to_probe_id"):
        parents[child] = (*parents.get(child, ()), parent)
    probes = tuple(rows)
    windows = {number: Maintenance.windows_of(number) for number in {p.watch_id for p in probes}}
    return Configuration(probes=probes, parents=parents, windows=windows)


def pings_after(last: int, probes: Sequence[int]) -> list[HeartbeatPing]:
    rows = HeartbeatPing.objects.filter(pk__gt=last, probe__in=probes)
    return list(rows.order_by("pk")[:MOST_PINGS])


def state_of(probe: Probe) -> ProbeState:
    return ProbeState(**{name: getattr(probe, name) for name in Probe.STATE_FIELDS})


def set_state(probe: Probe, state: ProbeState, result: Result, at: datetime) -> None:
    for name in Probe.STATE_FIELDS:
        setattr(probe, name, getattr(state, name))
    probe.last_run_at, probe.last_status = at, result.status
    probe.last_seconds, probe.last_output = result.seconds, redacted(result.output)
    if result.memory is not None:
        probe.memory = {**probe.memory, **result.memory}


SumKey = tuple[int, str, datetime]
"""Probe, period and start."""


class Sums:
    """Sums of the current periods, kept in memory and written as a whole."""

    def __init__(self) -> None:
        self._rows: dict[SumKey, ProbeSum] = {}
        self._known: set[SumKey] = set()
        """Sums that include what the database had before."""
        self._changed: set[SumKey] = set()

    def count(self, probe: int, result: Result, at: datetime, *, planned: bool) -> None:
        for period, start in (("5m", five_minutes_of(at)), ("day", day_of(at))):
            key = (probe, period, start)
            row = self._rows.get(key)
            if row is None:
                row = ProbeSum(probe_id=probe, period=period, start=start)
                self._rows[key] = row
            if planned:
                row.planned += 1
            else:
                row.runs += 1
                row.failed += not result.is_good
                if result.seconds is not None:
                    row.histogram = results.counted(row.histogram, result.seconds)
            self._changed.add(key)

    def take(self) -> set[SumKey]:
        """Returns what has changed since the last call, to be written."""
        keys, self._changed = self._changed, set()
        return keys

    def put_back(self, keys: set[SumKey]) -> None:
        """Keeps for the next time what could not be written."""
        self._changed |= keys

    def write(self, keys: set[SumKey], now: datetime) -> None:
        """Writes sums, and forgets those of periods that are over."""
        if not keys:
            return
        self._add_stored(keys - self._known)
        probes = Probe.objects.filter(pk__in={key[0] for key in keys})
        there = set(probes.values_list("pk", flat=True))
        ProbeSum.objects.bulk_create(
            [self._rows[key] for key in keys if key[0] in there],
            update_conflicts=True,
            unique_fields=["probe", "period", "start"],
            update_fields=SUM_FIELDS,
        )
        current = {five_minutes_of(now), day_of(now)}
        for key in list(self._rows):
            if key[2] not in current and key not in self._changed:
                del self._rows[key]
                self._known.discard(key)

    def _add_stored(self, keys: set[SumKey]) -> None:
        """Adds what another process, or this one before its clock was set back, has counted."""
        if not keys:
            return
        stored = ProbeSum.objects.filter(
            start__in={key[2] for key in keys}, probe__in={key[0] for key in keys}
        )
        for before in stored:
            key = (before.probe_id, before.period, before.start)
            if key in keys:
                row = self._rows[key]
                row.runs += before.runs
                row.failed += before.failed
                row.planned += before.planned
                row.histogram = results.added([row.histogram, before.histogram])
        self._known |= keys


def five_minutes_of(at: datetime) -> datetime:
    return at.replace(minute=at.minute - at.minute % 5, second=0, microsecond=0)


def day_of(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def write_states(probes: Sequence[Probe]) -> None:
    """Writes state and last result of probes, in one statement for all on each database."""
    names = (*Probe.STATE_FIELDS, *Probe.RESULT_FIELDS)
    columns = [field for field in Probe._meta.concrete_fields if field.name in names]
    assignments = ", ".join(f"{field.column} = %s" for field in columns)
    rows = [[*(_stored(field, probe) for field in columns), probe.pk] for probe in probes]
    with connection.cursor() as cursor:
        # The names of columns come from the model.
        cursor.executemany(
            f"UPDATE {Probe._meta.db_table} SET {assignments} WHERE id = %s",  # noqa: S608
            rows,
        )


def _stored(field: Field[Any, Any], probe: Probe) -> Any:
    return field.get_db_prep_save(field.pre_save(probe, False), connection)


def write(applied: Sequence[Applied], dirty: Sequence[Probe], sums: Sums) -> None:
    """Stores changes with the facts that they tell, in one transaction."""
    keys = sums.take()
    try:
        with installation_lock():
            kept = _kept(applied)
            ProbeChange.objects.bulk_create(
                ProbeChange(
                    probe=one.probe,
                    kind=one.step.change,
                    at=one.at,
                    status=one.result.status,
                    output=one.probe.last_output,
                    why_held=one.why_held,
                )
                for one in kept
                if one.step.change
            )
            write_states(dirty)
            for watch, facts in _facts(kept).items():
                wake(watch, facts)
            sums.write(keys, timezone.now())
    except BaseException:
        sums.put_back(keys)
        raise


def _kept(applied: Sequence[Applied]) -> list[Applied]:
    """Leaves out probes that were removed since."""
    numbers = {one.probe.pk for one in applied}
    there = (
        set(Probe.objects.filter(pk__in=numbers).values_list("pk", flat=True)) if numbers else ()
    )
    return [one for one in applied if one.probe.pk in there]


def _facts(applied: Iterable[Applied]) -> dict[Watch, list[Fact]]:
    """Returns what has to be told, by watch: one cycle answers for all."""
    found: dict[Watch, list[Fact]] = {}
    for one in applied:
        if one.step.tells_failure or one.step.tells_recovery:
            found.setdefault(one.probe.watch, []).append(fact_of(one))
    return found


def fact_of(one: Applied) -> Fact:
    probe = one.probe
    if one.step.tells_failure:
        return replace(probe.fact, at=one.at)
    proves = not is_down(probe.watch_id, probe.service)
    return replace(probe.fact, is_failing=False, at=one.at, since=one.at, proves=proves)
