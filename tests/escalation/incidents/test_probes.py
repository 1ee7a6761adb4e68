"""Facts outrank reports: open incidents, disagreements, and fixes that probes decide on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from escalation.incidents import recorder
from escalation.incidents.recorder import (
    AfterAlerts,
    after_alerts,
    decision_of,
    settle_by_probes,
)
from escalation.supervisor import verification
from escalation.supervisor.conclude import finish_cycle
from escalation.supervisor.cycles import start, wake
from sessions_app.history.incidents import disagreements, found_by_counts
from sessions_app.models import (
    Alert,
    Cycle,
    Incident,
    IncidentEvent,
    Maintenance,
    Probe,
    ProbeChange,
    Session,
    Watch,
)
from tests.escalation.rows import a_report
from tests.factories import (
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    SessionFactory,
    SourceFactory,
    WatchFactory,
)
from tests.tables import each_row

pytestmark = pytest.mark.django_db
State, Step, Outcome = Incident.State, IncidentEvent.Kind, Cycle.Outcome
NOW = timezone.now()
WELL = a_report(services=(("Web", "healthy"),))
DOWN = a_report(needed=True, reason="it is down", services=(("web", "down"),))
MENDED = a_report(services=(("web", "healthy"),), actions=(("restarted web", "succeeded"),))


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")


@pytest.fixture
def watch() -> Watch:
    watch: Watch = WatchFactory(name="shop")
    return watch


def a_probe(watch: Watch, state: str = Probe.State.DOWN, **facts: Any) -> Probe:
    is_down = state == Probe.State.DOWN
    return Probe.objects.create(
        **{
            "watch": watch,
            "name": f"web-{Probe.objects.count()}",
            "service": "web",
            "kind": Probe.Kind.TCP,
            "target": "127.0.0.1:1",
            "state": state,
            "failures": 3 if is_down else 0,
            "is_told": is_down,
            "last_status": 2 if is_down else 0,
            "last_output": "refused",
            "last_run_at": timezone.now(),
            "since": timezone.now() - timedelta(minutes=1),
            **facts,
        }
    )


def up(probe: Probe) -> None:
    now = timezone.now()
    Probe.objects.filter(pk=probe.pk).update(
        state=Probe.State.UP, failures=0, is_told=False, last_run_at=now, since=now, last_status=0
    )


def ended(watch: Watch, *reports: Any, outcome: str = Outcome.HEALTHY, **facts: Any) -> Cycle:
    """A cycle of several tiers that has ended."""
    cycle: Cycle = CycleFactory(running=True, watch=watch, **facts)
    for tier, report in enumerate(reports, start=1):
        run: Session = SessionFactory(cycle=cycle, tier=tier, report=report, messages=4)
        if report["actions_taken"]:
            ChangeFactory(session=run)
    finish_cycle(cycle, outcome, "as it was told")
    return cycle


def the_incident() -> Incident:
    return Incident.objects.get()


def kinds() -> list[str]:
    return list(the_incident().events.values_list("kind", flat=True))


def test_a_report_of_health_does_not_close_what_a_probe_finds_failing(watch):
    wake(watch, [a_probe(watch).fact])
    cycle = Cycle.objects.get()
    cycle.sessions.update(report=WELL, status="completed", messages=3, tier=1, model="haiku")

    finish_cycle(cycle, Outcome.HEALTHY, "fine")

    assert (the_incident().state, the_incident().healthy_cycles) == (State.OPEN, 0)
    assert kinds()[-1] == Step.CONTRADICTED
    assert disagreements(NOW - timedelta(days=1)) == [{"tier": 1, "model": "haiku", "times": 1}]


def test_a_disagreement_without_an_incident_opens_one(watch):
    a_probe(watch)

    ended(watch, WELL)

    assert the_incident().cause == "web"
    assert Step.CONTRADICTED in kinds()


def test_a_healthy_report_with_probes_that_are_up_is_believed(watch):
    a_probe(watch, Probe.State.UP)

    ended(watch, DOWN, outcome=Outcome.NEEDS_PERSON)
    ended(watch, WELL)

    assert the_incident().healthy_cycles == 1
    assert Step.CONTRADICTED not in kinds()


def test_a_failure_that_is_held_back_disputes_nothing(watch):
    a_probe(watch, is_told=False)

    ended(watch, WELL)

    assert not Incident.objects.exists()


def fixed(watch: Watch, probe: Probe) -> Incident:
    """An incident that a probe found and a tier claims to have fixed."""
    wake(watch, [probe.fact])
    cycle = Cycle.objects.get()
    first = cycle.sessions.get()
    Session.objects.filter(pk=first.pk).update(report=DOWN, status="escalated", messages=3)
    first.refresh_from_db()
    recorder.note_escalation(first, 2)
    mended = SessionFactory(cycle=cycle, tier=2, report=MENDED, messages=4, parent_session=first)
    ChangeFactory(session=mended)
    finish_cycle(cycle, Outcome.FIXED, "Tier 2 fixed it.")
    return the_incident()


def test_a_fix_is_verified_when_all_probes_are_up(watch):
    probe, other = a_probe(watch), a_probe(watch, Probe.State.UP)
    assert fixed(watch, probe).state == State.VERIFYING
    probe.refresh_from_db()
    assert probe.run_asked_at is not None

    assert settle_by_probes([watch.pk]) == 0
    up(probe)
    assert settle_by_probes([watch.pk]) == 0
    up(other)
    assert settle_by_probes([watch.pk]) == 1

    assert (the_incident().state, the_incident().resolved_as) == (State.RESOLVED, "agent")
    assert Cycle.objects.count() == 1


def test_a_fix_after_which_a_probe_stays_down_did_not_hold(watch):
    probe = a_probe(watch)
    incident = fixed(watch, probe)
    long_ago = timezone.now() - timedelta(minutes=2)
    incident.events.filter(kind=Step.FIXED).update(at=long_ago)

    assert settle_by_probes([watch.pk]) == 1

    assert (the_incident().state, the_incident().times_reopened) == (State.OPEN, 1)
    assert kinds()[-2:] == [Step.DID_NOT_HOLD, Step.CONTRADICTED]
    assert disagreements(NOW - timedelta(days=1))[0]["tier"] == 2


def test_no_cycle_verifies_what_probes_decide(watch):
    incident = fixed(watch, a_probe(watch))
    Incident.objects.update(verify_at=timezone.now() - timedelta(minutes=1))

    assert verification.verify_due() == []

    Probe.objects.all().delete()
    assert [cycle.trigger for cycle in verification.verify_due()] == ["verification"]
    assert incident.pk == the_incident().pk


def test_a_probe_that_never_saw_the_problem_does_not_verify_the_fix(watch):
    a_probe(watch, Probe.State.UP)
    ended(watch, DOWN, MENDED, outcome=Outcome.FIXED)
    Incident.objects.update(verify_at=timezone.now() - timedelta(minutes=1))

    assert settle_by_probes([watch.pk]) == 0
    assert len(verification.verify_due()) == 1


def test_a_probe_that_failed_later_verifies_the_fix(watch):
    probe = a_probe(watch, Probe.State.UP)
    ended(watch, DOWN, outcome=Outcome.NEEDS_PERSON)
    ProbeChange.objects.create(probe=probe, kind="down", status=2, at=timezone.now())
    ended(watch, DOWN, MENDED, outcome=Outcome.FIXED)
    up(probe)

    assert settle_by_probes([watch.pk]) == 1
    assert the_incident().resolved_as == "agent"


def test_recovery_during_a_cycle_resolves_the_incident_after_it(watch):
    probe = a_probe(watch)
    wake(watch, [probe.fact])
    Incident.objects.update(state=State.WORKING)
    up(probe)
    assert settle_by_probes([watch.pk]) == 0
    cycle = Cycle.objects.get()
    cycle.sessions.update(status="completed", report=a_report(services=(("db", "healthy"),)))
    finish_cycle(cycle, Outcome.HEALTHY, "it says nothing of web")

    assert settle_by_probes([watch.pk]) == 1
    assert (the_incident().state, the_incident().resolved_as) == (State.RESOLVED, "itself")


def probe_after(fix: float | None, state: str, failures: int = 0) -> Probe:
    at = None if fix is None else NOW + timedelta(seconds=fix)
    return Probe(state=state, failures=failures, last_run_at=at)


UP_AFTER, DOWN_AFTER = probe_after(5, "up"), probe_after(5, "down", 2)


@each_row(
    "probes, seconds, holds",
    [
        ([UP_AFTER], 6, True),
        ([UP_AFTER, UP_AFTER], 6, True),
        ([probe_after(-5, "up")], 600, None),
        ([probe_after(None, "pending")], 600, None),
        ([UP_AFTER, probe_after(-5, "up")], 6, None),
        ([probe_after(5, "up", 1)], 6, None),
        ([DOWN_AFTER], 6, None),
        ([DOWN_AFTER], 61, False),
        ([UP_AFTER, DOWN_AFTER], 61, False),
        ([probe_after(-5, "down", 2)], 61, None),
        ([probe_after(5, "down", 0)], 61, None),
    ],
)
def test_what_probes_say_about_a_fix(probes, seconds, holds):
    assert decision_of(probes, NOW, NOW + timedelta(seconds=seconds)) is holds


def witness(state: str = Probe.State.UP, seconds: int | None = 1, failures: int = 0) -> Probe:
    looked = NOW + timedelta(seconds=seconds) if seconds is not None else None
    return Probe(state=state, failures=failures, last_run_at=looked)


@each_row(
    "probes, ended_at, still_fires, follows",
    [
        ([witness(), witness()], NOW, False, AfterAlerts.RESOLVED),
        ([witness(), witness(seconds=-1)], NOW, False, AfterAlerts.RUN_PROBES),
        ([witness(Probe.State.PENDING, None)], NOW, False, AfterAlerts.RUN_PROBES),
        ([witness(), witness(Probe.State.DOWN)], NOW, False, AfterAlerts.CYCLE_LOOKS),
        ([witness(failures=1)], NOW, False, AfterAlerts.CYCLE_LOOKS),
        ([witness()], NOW, True, AfterAlerts.CYCLE_LOOKS),
        ([witness()], None, False, AfterAlerts.CYCLE_LOOKS),
        ([], NOW, False, AfterAlerts.CYCLE_LOOKS),
    ],
)
def test_what_follows_the_end_of_alerts(probes, ended_at, still_fires, follows):
    assert after_alerts(probes, ended_at, still_fires=still_fires) == follows


def test_green_probes_resolve_what_an_alert_found_and_ended(watch):
    seen = {"service": "web", "severity": 3, "summary": "web is down"}
    open_, without_probes = (
        IncidentFactory(watch=watch, cause=cause, found_by="alert", healthy_cycles=1)
        for cause in ("web", "mail")
    )
    source = SourceFactory(watch=watch)
    for number, incident in enumerate((open_, without_probes)):
        Alert.objects.create(
            **seen,
            source=source,
            fingerprint=str(number),
            incident=incident,
            watch=watch,
            state=Alert.State.RESOLVED,
            resolved_at=timezone.now(),
        )
    probe = a_probe(watch, Probe.State.UP, last_run_at=timezone.now() - timedelta(minutes=1))

    assert settle_by_probes([watch.pk]) == 0
    probe.refresh_from_db()
    assert probe.run_asked_at is not None
    Probe.objects.update(last_run_at=timezone.now())
    assert settle_by_probes([watch.pk]) == 1

    open_.refresh_from_db()
    without_probes.refresh_from_db()
    assert (open_.state, open_.resolved_as) == (State.RESOLVED, Incident.ResolvedBy.ITSELF)
    assert without_probes.state == State.OPEN


def test_every_cycle_but_a_verification_is_told_of_failing_probes(watch):
    a_probe(watch)

    told = start(watch, trigger=Cycle.Trigger.SCHEDULE)
    Cycle.objects.update(state="finished", outcome="healthy")
    blind = start(watch, trigger=Cycle.Trigger.VERIFICATION)

    assert [fact.name for fact in told.facts] == ["web-0"]
    assert blind.facts == []


def test_no_cycle_starts_in_maintenance(watch):
    Maintenance.objects.create(watch=watch)

    assert wake(watch, [a_probe(watch).fact]).cycle is None
    assert the_incident().state == State.OPEN


def test_incidents_are_counted_by_who_found_them(watch):
    probe = a_probe(watch, failing_since=timezone.now() - timedelta(seconds=40))
    wake(watch, [probe.fact])
    Cycle.objects.update(state=Cycle.State.FINISHED)
    ended(watch, a_report(needed=True, reason="x", services=(("db", "down"),)))

    by_probe, by_model = found_by_counts(NOW - timedelta(days=1))

    assert (by_probe.found_by, by_probe.count) == ("a probe", 1)
    assert by_probe.notice_seconds == pytest.approx(40, abs=5)
    assert (by_model.count, by_model.notice_seconds) == (1, None)


def test_the_page_of_the_incidents_counts_who_found_them_and_disagreements(watch, operator_client):
    a_probe(watch)
    ended(watch, WELL)

    page = operator_client.get("/incidents/").content.decode()

    assert "a model: 1" in page
    assert "Reported healthy while a probe was down: Tier 1" in page
