"""The loop: schedule, states, changes, sums, facts, leases; with a real event loop and database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from escalation.probes import loop as loop_module
from escalation.probes import store
from escalation.probes.kinds import CommandSandboxPool
from escalation.probes.loop import ProbeLoop
from escalation.probes.results import Result
from escalation.supervisor.cycles import wake as real_wake
from sessions_app.models import (
    Cycle,
    HeartbeatPing,
    Incident,
    Maintenance,
    Probe,
    ProbeChange,
    ProbeLease,
    ProbeSum,
    Watch,
)
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db(transaction=True)
State, Change, Status = Probe.State, ProbeChange.Kind, Probe.Status
GOOD, BAD = Result(status=0, output="fine", seconds=0.003), Result(status=2, output="refused")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    monkeypatch.setattr(loop_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(loop_module, "_interval", lambda probe: 0.05)


@pytest.fixture
def watch() -> Watch:
    watch: Watch = WatchFactory(name="shop")
    return watch


def a_probe(watch: Watch, name: str = "web-http", **facts: Any) -> Probe:
    return Probe.objects.create(
        **{
            "watch": watch,
            "name": name,
            "service": "web",
            "kind": Probe.Kind.TCP,
            "target": "127.0.0.1:1",
            **facts,
        }
    )


class Scripted:
    """Results by the name of a probe: a function of the number of runs so far."""

    def __init__(self, **results: Callable[[int], Result]) -> None:
        self.results = results
        self.runs: list[str] = []

    async def __call__(self, probe: Probe, pool: CommandSandboxPool) -> Result:
        self.runs.append(probe.name)
        answer = self.results.get(probe.name.replace("-", "_"), lambda count: GOOD)
        return answer(self.runs.count(probe.name))


def play(run: Any, until: Callable[[], bool], seconds: float = 20) -> ProbeLoop:
    """Run the loop until the database says so; the condition is asked in the database's thread."""
    end = time.monotonic() + seconds
    found = False

    async def main() -> ProbeLoop:
        nonlocal found
        loop = ProbeLoop(run)
        over = False
        working = asyncio.create_task(loop.work_until(lambda: over))
        while not found and time.monotonic() < end:
            await asyncio.sleep(0.1)
            found = await loop._in_database(until)
        over = True
        await working
        return loop

    played = asyncio.run(main())
    assert found, "the condition did not come true in time"
    return played


def changes() -> list[str]:
    return list(ProbeChange.objects.order_by("pk").values_list("kind", flat=True))


def test_a_failing_probe_opens_an_incident_and_a_cycle_and_recovers(watch):
    a_probe(watch)
    run = Scripted(web_http=lambda count: BAD if 3 <= count <= 6 else GOOD)

    play(run, lambda: changes() == [Change.UP, Change.DOWN, Change.UP])

    incident, cycle = Incident.objects.get(), Cycle.objects.get()
    assert (incident.cause, incident.found_by) == ("web", Incident.FoundBy.PROBE)
    assert (cycle.trigger, cycle.facts[0].output) == (Cycle.Trigger.PROBE, "refused")
    assert [fact.is_failing for fact in cycle.facts] == [True, False]
    probe = Probe.objects.get()
    assert (probe.state, probe.last_output, probe.is_told) == (State.UP, "fine", False)
    totals = ProbeSum.objects.filter(period="day").values_list("runs", "failed")
    [(runs, failed)] = totals
    assert failed == 4
    assert runs >= 8


def test_maintenance_and_needs_hold_failures_back(watch):
    router = a_probe(watch, "router", service="router")
    a_probe(watch, "child").needs.add(router)
    a_probe(watch, "planned", service="backup")
    Maintenance.objects.create(watch=watch, service="Backup", ends_at=None)
    run = Scripted(router=lambda n: BAD, child=lambda n: BAD, planned=lambda n: BAD)

    play(run, lambda: ProbeChange.objects.count() >= 3)

    assert dict(ProbeChange.objects.values_list("probe__name", "kind")) == {
        "router": Change.DOWN,
        "child": Change.HELD,
        "planned": Change.HELD,
    }
    assert list(Incident.objects.values_list("cause", flat=True)) == ["router"]
    assert ProbeSum.objects.filter(probe__name="planned", runs=0, planned__gt=0).exists()


def test_a_heartbeat_that_fails_or_is_late_is_down(watch):
    now = timezone.now()
    fails = a_probe(watch, "backup", kind="heartbeat", target="", fail_after=1, service="backup")
    late = a_probe(watch, "cron", kind="heartbeat", target="", fail_after=1, service="cron")
    Probe.objects.filter(pk=late.pk).update(created_at=now - timedelta(hours=1))
    HeartbeatPing.objects.create(probe=fails, kind="success", at=now - timedelta(seconds=30))
    HeartbeatPing.objects.create(probe=fails, kind="start", at=now - timedelta(seconds=20))
    HeartbeatPing.objects.create(probe=fails, kind="fail", exit_code=2, body="disk full", at=now)

    play(Scripted(), lambda: Incident.objects.count() == 2)

    fails.refresh_from_db()
    assert (fails.state, fails.last_output) == (State.DOWN, "exit code 2: disk full")
    assert fails.last_seconds == pytest.approx(20, abs=0.01)
    assert set(Incident.objects.values_list("cause", flat=True)) == {"backup", "cron"}


def test_a_heartbeat_that_was_called_before_the_clock_was_set_back_becomes_late_again(watch):
    ahead = (timezone.now() + timedelta(days=300)).isoformat()
    facts = {"kind": Probe.Kind.HEARTBEAT, "target": "", "fail_after": 1}
    memory = {"heard_at": ahead, "started_at": ahead}
    limits = {"interval_seconds": 1, "timeout_seconds": 1}
    a_probe(watch, "backup", memory=memory, **facts, **limits)

    play(Scripted(), lambda: changes() == [Change.DOWN])


def test_a_change_that_the_database_refuses_is_stored_once_it_takes_it(watch, monkeypatch):
    a_probe(watch, fail_after=1)
    refused: list[int] = []

    def wake(watch: Watch, facts: Any) -> Any:
        woken = real_wake(watch, facts)
        if len(refused) < 3:
            refused.append(1)
            raise OperationalError("database is locked")
        return woken

    monkeypatch.setattr(store, "wake", wake)
    scripted = Scripted(web_http=lambda count: BAD)

    play(scripted, lambda: bool(changes()))

    assert len(refused) == 3
    assert changes() == [Change.DOWN]
    assert Incident.objects.count() == Cycle.objects.count() == 1
    [day] = ProbeSum.objects.filter(period="day")
    assert day.runs == day.failed == len(scripted.runs)


def test_a_slow_watch_does_not_delay_another(watch):
    for number in range(40):
        a_probe(watch, f"slow{number}")
    a_probe(WatchFactory(), "quick")

    async def run(probe: Probe, pool: CommandSandboxPool) -> Result:
        if probe.name.startswith("slow"):
            await asyncio.sleep(3)
        return GOOD

    began = time.monotonic()
    play(run, lambda: Probe.objects.get(name="quick").state == State.UP)
    assert time.monotonic() - began < 10


def test_a_probe_that_raises_is_tried_again(watch):
    a_probe(watch)

    async def run(probe: Probe, pool: CommandSandboxPool) -> Result:
        run.calls += 1  # type: ignore[attr-defined]
        if run.calls < 3:  # type: ignore[attr-defined]
            raise RuntimeError("broken")
        return GOOD

    run.calls = 0  # type: ignore[attr-defined]
    play(run, lambda: changes() == [Change.UP])


def test_a_run_that_a_person_asked_for_comes_at_once(watch, monkeypatch):
    monkeypatch.setattr(loop_module, "_interval", lambda probe: 3600.0)
    probe = a_probe(watch, last_run_at=timezone.now() - timedelta(hours=1), state=State.UP)
    Probe.objects.filter(pk=probe.pk).update(run_asked_at=timezone.now())

    play(Scripted(), lambda: Probe.objects.get().last_output == "fine")


def test_leases_are_taken_renewed_and_given_back(watch, settings):
    a_probe(watch)
    assert store.lease_watches() == {watch.pk}
    ProbeLease.objects.update(host="other")
    assert store.lease_watches() == frozenset()
    ProbeLease.objects.update(until=timezone.now() - timedelta(seconds=1))
    assert store.lease_watches() == {watch.pk}
    store.release_leases()
    assert not ProbeLease.objects.exists()
    Watch.objects.update(hosts="elsewhere")
    assert store.lease_watches() == frozenset()


def test_a_lease_from_a_clock_that_was_wrong_is_taken(watch):
    a_probe(watch)
    ProbeLease.objects.create(watch=watch, host="dead", until=timezone.now() + timedelta(days=9))

    assert store.lease_watches() == {watch.pk}


def test_sums_continue_those_of_another_process_once(watch):
    probe, at = a_probe(watch), datetime(2026, 11, 18, 12, 7, tzinfo=UTC)
    for _process in range(2):
        sums = store.Sums()
        for result in (GOOD, BAD):
            sums.count(probe.pk, result, at, planned=False)
            sums.write(sums.take(), at)

    five, day = ProbeSum.objects.order_by("period")
    assert (five.start.minute, five.runs, five.failed, sum(five.histogram)) == (5, 4, 2, 2)
    assert (day.runs, day.uptime) == (4, 0.5)


def test_a_removed_probe_is_forgotten(watch):
    probe = a_probe(watch)
    sums = store.Sums()
    sums.count(probe.pk, GOOD, timezone.now(), planned=False)
    Probe.objects.all().delete()

    store.write([], [probe], sums)

    assert not ProbeSum.objects.exists()
