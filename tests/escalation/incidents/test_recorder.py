"""The end of a cycle changes its incidents in one transaction: opened, kept, resolved, notified."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from escalation.errors import WhyNot
from escalation.incidents import recorder
from escalation.incidents.findings import Finding
from escalation.report import Report
from escalation.supervisor.conclude import finish_cycle
from sessions_app.models import (
    Cycle,
    Incident,
    IncidentEvent,
    Notification,
    Session,
    Watch,
)
from tests.escalation.rows import a_report
from tests.factories import (
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    SessionEventFactory,
    SessionFactory,
    WatchFactory,
)

pytestmark = pytest.mark.django_db
Kind, State, Step = Incident.Kind, Incident.State, IncidentEvent.Kind
Outcome = Cycle.Outcome

DOWN = a_report(needed=True, reason="it is down", services=(("web", "down"), ("db", "healthy")))
WELL = a_report(services=(("web", "healthy"), ("db", "healthy")))
MENDED = a_report(services=(("web", "healthy"),), actions=(("restarted web", "succeeded"),))


@pytest.fixture
def watch() -> Watch:
    watch: Watch = WatchFactory(name="shop")
    return watch


def a_cycle(watch: Watch | None, **facts: Any) -> Cycle:
    cycle: Cycle = CycleFactory(running=True, watch=watch, **facts)
    return cycle


def a_run(cycle: Cycle, report: Report | None, tier: int = 1, **facts: Any) -> Session:
    run: Session = SessionFactory(cycle=cycle, tier=tier, report=report, messages=4, **facts)
    if report and any(action["result"] == "succeeded" for action in report["actions_taken"]):
        ChangeFactory(session=run)
    return run


def ended(watch: Watch | None, report: Report | None, outcome: str, **facts: Any) -> Cycle:
    cycle = a_cycle(watch, **facts)
    a_run(cycle, report)
    finish_cycle(cycle, outcome, "as it was told")
    return cycle


def fixed_by_tier_2(watch: Watch | None, **facts: Any) -> Cycle:
    cycle = a_cycle(watch, **facts)
    recorder.note_escalation(a_run(cycle, DOWN, status="escalated"), 2)
    a_run(cycle, MENDED, tier=2)
    finish_cycle(cycle, Outcome.FIXED, "Tier 2 fixed it.")
    return cycle


def verification_of(incident: Incident, watch: Watch | None) -> Cycle:
    cycle = a_cycle(watch, trigger=Cycle.Trigger.VERIFICATION, drill=incident.drill)
    Incident.objects.filter(pk=incident.pk).update(last_cycle=cycle, verify_at=None)
    return cycle


def the_incident() -> Incident:
    return Incident.objects.get(kind=Kind.PROBLEM)


def event_kinds(incident: Incident) -> list[str]:
    return list(incident.events.values_list("kind", flat=True))


def told() -> list[str]:
    return list(Notification.objects.values_list("kind", flat=True))


def test_a_cycle_with_a_problem_opens_one_incident(watch):
    cycle = ended(watch, DOWN, Outcome.NEEDS_PERSON)

    incident = the_incident()
    assert (incident.watch, incident.watch_name, incident.cause) == (watch, "shop", "web")
    assert (incident.kind, incident.state, incident.severity) == (Kind.PROBLEM, State.OPEN, 3)
    assert list(incident.cycles.all()) == [cycle]
    assert told() == [Notification.Kind.INCIDENT_OPENED]


def test_many_cycles_with_the_same_problem_are_one_incident(watch):
    for _ in range(3):
        ended(watch, DOWN, Outcome.NEEDS_PERSON)

    incident = the_incident()
    assert (incident.times_seen, incident.cycles.count()) == (3, 3)
    assert incident.last_seen_at > incident.first_seen_at
    assert event_kinds(incident) == [Step.OPENED, Step.SEEN, Step.SEEN]
    assert told() == [Notification.Kind.INCIDENT_OPENED]


def test_a_cycle_that_cannot_tell_the_state_keeps_severity_and_title(watch):
    ended(watch, DOWN, Outcome.NEEDS_PERSON)

    ended(watch, a_report(services=(("/web", "unknown"),)), Outcome.NEEDS_PERSON)

    incident = the_incident()
    assert (incident.severity, incident.title, incident.times_seen) == (3, "web is down", 2)


def test_a_verification_that_cannot_tell_the_state_does_not_disprove_the_fix(watch):
    fixed_by_tier_2(watch)
    cycle = verification_of(the_incident(), watch)
    a_run(cycle, a_report(services=(("web", "unknown"),)))

    finish_cycle(cycle, Outcome.NEEDS_PERSON, "web is unknown.")

    incident = the_incident()
    assert (incident.state, incident.verifications_tried) == (State.VERIFYING, 1)
    assert event_kinds(incident)[-1] == Step.NOT_VERIFIED


def test_a_claim_that_is_not_in_the_record_fixes_no_incident(watch):
    cycle = a_cycle(watch)
    recorder.note_escalation(a_run(cycle, DOWN, status="escalated"), 2)
    SessionFactory(cycle=cycle, tier=2, report=MENDED, messages=4)

    finish_cycle(cycle, Outcome.FIXED, "Tier 2 fixed it.")

    incident = the_incident()
    assert (incident.state, incident.remedy) == (State.OPEN, "")
    assert incident.seems_recovered


def test_a_claim_that_the_record_contradicts_leaves_the_incident_to_a_person(watch):
    cycle = a_cycle(watch)
    recorder.note_escalation(a_run(cycle, DOWN, status="escalated"), 2)
    run = SessionFactory(cycle=cycle, tier=2, report=MENDED, messages=4)
    asked = {"call": "c1", "verdict": "ask", "changes": ["docker restart web"]}
    SessionEventFactory(session=run, source="supervisor", kind="command", payload=asked)
    ended = {"call": "c1", "has_run": False, "exit_code": 126}
    SessionEventFactory(session=run, source="supervisor", kind="command_end", payload=ended)

    finish_cycle(cycle, Outcome.NEEDS_PERSON, "The record says otherwise.")

    incident = the_incident()
    assert (incident.state, incident.healthy_cycles, incident.remedy) == (State.OPEN, 0, "")
    assert incident.asks_for_person
    assert event_kinds(incident) == [Step.OPENED, Step.WORKED_ON, Step.SEEN]


@pytest.mark.parametrize("cause", ["person", "pause", "foreground"])
def test_a_session_that_a_person_stopped_opens_no_incident(watch, cause):
    cycle = a_cycle(watch)
    a_run(cycle, None, status="interrupted", stop_cause=cause)

    finish_cycle(cycle, Outcome.NEEDS_PERSON, "Tier 1 was stopped.")

    assert not Incident.objects.exists()


def test_a_stopped_higher_tier_keeps_the_incident_of_the_tier_before(watch):
    cycle = a_cycle(watch)
    recorder.note_escalation(a_run(cycle, DOWN, status="escalated"), 2)
    a_run(cycle, None, tier=2, status="interrupted", stop_cause="person")

    finish_cycle(cycle, Outcome.NEEDS_PERSON, "Tier 2 was stopped.", stopped_by="ada")

    assert the_incident().asks_for_person


@pytest.mark.parametrize("has_session", [True, False])
def test_a_cancelled_cycle_opens_no_incident(watch, has_session):
    cycle = a_cycle(watch)
    if has_session:
        a_run(cycle, None, status="cancelled")

    finish_cycle(cycle, Outcome.NEEDS_PERSON, "ada cancelled it.", stopped_by="ada")

    assert not Incident.objects.exists()


def test_two_watches_have_an_incident_each(watch):
    ended(watch, DOWN, Outcome.NEEDS_PERSON)
    ended(WatchFactory(), DOWN, Outcome.NEEDS_PERSON)

    assert Incident.objects.count() == 2


def test_a_first_healthy_cycle_is_counted_and_a_second_resolves_the_incident(watch):
    ended(watch, DOWN, Outcome.NEEDS_PERSON)

    ended(watch, WELL, Outcome.HEALTHY)
    assert the_incident().seems_recovered

    ended(watch, WELL, Outcome.HEALTHY)
    incident = the_incident()
    assert (incident.state, incident.resolved_as) == (State.RESOLVED, "itself")
    assert told() == [Notification.Kind.INCIDENT_OPENED, Notification.Kind.INCIDENT_RESOLVED]


def test_a_service_that_a_report_does_not_mention_is_not_healthy(watch):
    ended(watch, DOWN, Outcome.NEEDS_PERSON)

    for _ in range(3):
        ended(watch, a_report(services=(("db", "healthy"),)), Outcome.HEALTHY)

    assert (the_incident().state, the_incident().healthy_cycles) == (State.OPEN, 0)


def test_a_problem_after_its_resolution_is_a_new_incident(watch):
    ended(watch, DOWN, Outcome.NEEDS_PERSON)
    Incident.objects.update(state=State.RESOLVED, resolved_at=timezone.now())

    ended(watch, DOWN, Outcome.NEEDS_PERSON)

    assert [one.state for one in Incident.objects.all()] == [State.OPEN, State.RESOLVED]


def test_an_escalation_moves_the_incident_to_working_with_its_chain(watch):
    cycle = a_cycle(watch)
    run = a_run(cycle, DOWN, status="escalated")

    recorder.note_escalation(run, 2)

    incident = the_incident()
    assert incident.state == State.WORKING
    assert incident.events.get(kind=Step.WORKED_ON).session == run
    assert told() == [Notification.Kind.INCIDENT_OPENED]


def test_a_cycle_is_counted_once_however_many_tiers_it_has(watch):
    cycle = a_cycle(watch)
    for tier in (1, 2):
        recorder.note_escalation(a_run(cycle, DOWN, tier=tier, status="escalated"), tier + 1)
    a_run(cycle, DOWN, tier=3)
    finish_cycle(cycle, Outcome.NEEDS_PERSON, "Tier 3 could not mend it.")

    assert (the_incident().state, the_incident().times_seen) == (State.OPEN, 1)


def test_a_fix_is_due_for_verification_later(watch, settings):
    settings.CLAUDEOPS_VERIFY_AFTER = 300

    fixed_by_tier_2(watch)

    incident = the_incident()
    assert (incident.state, incident.remedy) == (State.VERIFYING, "restarted web")
    assert incident.verify_at is not None
    due_in = incident.verify_at - incident.last_seen_at
    assert timedelta(seconds=299) < due_in < timedelta(seconds=310)


def test_a_scheduled_healthy_cycle_does_not_verify_a_fix(watch):
    fixed_by_tier_2(watch)

    for _ in range(3):
        ended(watch, WELL, Outcome.HEALTHY)

    assert the_incident().state == State.VERIFYING


def test_a_healthy_verification_resolves_the_incident(watch):
    fixed_by_tier_2(watch)
    cycle = verification_of(the_incident(), watch)
    a_run(cycle, WELL)

    finish_cycle(cycle, Outcome.HEALTHY, "all is well")

    incident = the_incident()
    assert (incident.state, incident.resolved_as) == (State.RESOLVED, "agent")
    assert told() == [Notification.Kind.INCIDENT_OPENED, Notification.Kind.FIX_VERIFIED]


def test_a_failed_verification_opens_the_incident_and_keeps_the_remedy(watch):
    fixed_by_tier_2(watch)
    cycle = verification_of(the_incident(), watch)
    a_run(cycle, DOWN)

    finish_cycle(cycle, Outcome.NEEDS_PERSON, "Not escalated: no tier above 1.")

    incident = the_incident()
    assert (incident.state, incident.times_reopened) == (State.OPEN, 1)
    assert incident.events.get(kind=Step.DID_NOT_HOLD).text == "restarted web"
    assert told() == [Notification.Kind.INCIDENT_OPENED, Notification.Kind.FIX_DID_NOT_HOLD]


@pytest.mark.parametrize("report", [None, a_report(services=(("db", "healthy"),))])
def test_a_verification_without_a_result_is_retried_and_then_needs_a_person(watch, report):
    fixed_by_tier_2(watch)

    states = []
    for _ in range(3):
        cycle = verification_of(the_incident(), watch)
        a_run(cycle, report, status="completed" if report else "failed")
        outcome = Outcome.HEALTHY if report else Outcome.COULD_NOT_RUN
        finish_cycle(cycle, outcome, "as it was told")
        incident = Incident.objects.get(cause="web")
        states.append((incident.state, incident.verify_at is not None))

    assert states == [(State.VERIFYING, True), (State.VERIFYING, True), (State.OPEN, False)]


def test_a_chain_that_fails_leaves_no_incident_in_working(watch):
    cycle = a_cycle(watch)
    recorder.note_escalation(a_run(cycle, DOWN, status="escalated"), 2)
    a_run(cycle, None, tier=2, status="interrupted")

    finish_cycle(cycle, Outcome.NEEDS_PERSON, "Tier 2 was cut off.")

    incident = the_incident()
    assert incident.state == State.OPEN
    assert "Tier 2 was cut off." in incident.detail


def test_a_chain_that_does_not_mention_the_service_leaves_the_incident_open(watch):
    cycle = a_cycle(watch)
    recorder.note_escalation(a_run(cycle, DOWN, status="escalated"), 2)
    Incident.objects.update(cause="cart")
    a_run(cycle, MENDED, tier=2)

    finish_cycle(cycle, Outcome.FIXED, "as it was told")

    assert Incident.objects.get(cause="cart").state == State.OPEN


def test_a_fix_without_an_incident_opens_one_for_verification(watch):
    cycle = a_cycle(watch, first_tier=2)
    mended = {**MENDED}
    mended["actions_taken"] = [{"action": "restarted", "service": "web", "result": "succeeded"}]
    a_run(cycle, mended, tier=2)  # type: ignore[arg-type]

    finish_cycle(cycle, Outcome.FIXED, "Tier 2 fixed it.")

    assert the_incident().state == State.VERIFYING


def test_an_incident_resolved_by_a_person_during_a_chain_stays_resolved(watch):
    cycle = a_cycle(watch)
    recorder.note_escalation(a_run(cycle, DOWN, status="escalated"), 2)
    Incident.objects.update(state=State.RESOLVED)
    a_run(cycle, MENDED, tier=2)

    finish_cycle(cycle, Outcome.FIXED, "Tier 2 fixed it.")

    assert the_incident().state == State.RESOLVED


def test_an_incident_without_a_report_is_resolved_by_later_reports(watch):
    ended(watch, None, Outcome.NEEDS_PERSON)
    assert the_incident().cause == "#no_report"

    ended(watch, WELL, Outcome.HEALTHY)
    ended(watch, WELL, Outcome.HEALTHY)

    assert the_incident().state == State.RESOLVED


def test_skipped_schedules_open_one_incident_for_the_installation():
    for _ in range(3):
        recorder.note_no_credentials("Set ANTHROPIC_API_KEY.")

    incident = Incident.objects.get()
    assert (incident.scope, incident.kind) == ("installation", Kind.COULD_NOT_RUN)
    assert (incident.watch, incident.cause) == (None, WhyNot.NO_CREDENTIALS)
    assert (incident.times_seen, event_kinds(incident)) == (3, [Step.OPENED])
    assert told() == [Notification.Kind.INCIDENT_OPENED]


def test_a_finding_outside_of_a_cycle_belongs_to_its_watch(watch):
    finding = Finding(
        kind=Kind.PROBLEM, scope=f"watch:{watch.pk}", cause="web", title="web", severity=2
    )

    for _ in range(2):
        recorder.note(finding, watch)

    assert (the_incident().watch, the_incident().times_seen) == (watch, 2)


def test_an_incident_of_the_installation_is_resolved_by_two_healthy_cycles(watch):
    recorder.note_no_credentials("Set ANTHROPIC_API_KEY.")

    ended(watch, WELL, Outcome.HEALTHY)
    assert Incident.objects.get().seems_recovered
    ended(WatchFactory(), WELL, Outcome.HEALTHY)

    assert (Incident.objects.get().state, Incident.objects.get().resolved_as) == (
        State.RESOLVED,
        "itself",
    )


def test_a_cycle_that_could_not_run_opens_an_incident_of_that_kind(watch):
    cycle = a_cycle(watch)
    SessionFactory(cycle=cycle, failed=True)

    finish_cycle(cycle, Outcome.COULD_NOT_RUN, "No directory.", WhyNot.WORKDIR)

    incident = Incident.objects.get()
    assert (incident.kind, incident.scope) == (Kind.COULD_NOT_RUN, f"watch:{watch.pk}")
    assert incident.cause == WhyNot.WORKDIR


def test_a_drill_has_its_own_incidents_and_sends_no_notification(watch):
    IncidentFactory(watch=None, scope="installation", kind=Kind.COULD_NOT_RUN)

    fixed_by_tier_2(None, drill="three-tiers")

    incident = Incident.objects.exclude(drill="").get()
    assert (incident.scope, incident.drill) == ("drill:three-tiers", "three-tiers")
    assert incident.subject == "drill three-tiers"
    assert incident.verify_at is not None
    assert incident.verify_at - incident.last_seen_at < timedelta(seconds=10)
    assert Incident.objects.get(scope="installation").healthy_cycles == 0
    assert told() == []


def test_a_rolled_back_ending_leaves_no_incident_and_no_notification(watch):
    with transaction.atomic():
        ended(watch, DOWN, Outcome.NEEDS_PERSON)
        transaction.set_rollback(True)

    assert not Incident.objects.exists()
    assert told() == []


def test_a_cycle_without_findings_needs_few_queries(watch):
    cycle = a_cycle(watch)
    a_run(cycle, WELL)
    cycle.finish(Outcome.HEALTHY, "all is well")

    with CaptureQueriesContext(connection) as queries:
        recorder.note_outcome(cycle)

    # Runs, failing probes, firing alerts and incidents are read; the services are read and written.
    # PostgreSQL asks for the lock that SQLite has by itself.
    locking = int(connection.vendor == "postgresql")
    assert len([q for q in queries if "SAVEPOINT" not in q["sql"]]) <= 6 + locking


def test_a_thousand_incidents_need_few_queries_each(watch):
    many = a_report(services=tuple((f"service-{n}", "down") for n in range(1_000)))
    well = a_report(services=tuple((f"service-{n}", "healthy") for n in range(1_000)))
    ended(watch, many, Outcome.NEEDS_PERSON)

    with CaptureQueriesContext(connection) as asked:
        ended(watch, many, Outcome.NEEDS_PERSON)
        ended(watch, well, Outcome.HEALTHY)

    assert Incident.objects.filter(times_seen=2, healthy_cycles=1).count() == 1_000
    assert len(asked) < 2 * 4 * 1_000


def test_services_that_one_cycle_finds_down_are_one_message(watch):
    both = a_report(needed=True, reason="disk", services=(("web", "degraded"), ("db", "down")))

    ended(watch, both, Outcome.NEEDS_PERSON)

    [message] = Notification.objects.all()
    assert Incident.objects.count() == 2
    assert message.title == "shop: web is degraded, db is down"
    assert message.incident == Incident.objects.get(cause="db")
    assert message.severity == 3
