"""The circuit breaker: a watch that fails repeatedly runs less often, and this is shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.urls import reverse
from django.utils import timezone
from django_q.models import Schedule

from escalation import tasks
from escalation.supervisor import cycles
from escalation.supervisor.breaker import CycleEvidence, LastRun, evidence_of, note_outcome
from escalation.supervisor.conclude import finish_cycle
from escalation.worker.schedules import schedule_name
from sessions_app.models import Cycle, Session, Watch
from tests.escalation.rows import ESCALATE, HEALTHY, a_report
from tests.escalation.runs import run
from tests.factories import CycleFactory, SessionFactory, WatchFactory
from tests.tables import each_row

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
Outcome, Status = Cycle.Outcome, Session.Status
EVERY_MORNING_HOUR = "0 6-11 * * *"


def fail(watch: Watch, times: int = 1, outcome: str = Outcome.COULD_NOT_RUN) -> Watch:
    for _ in range(times):
        note_outcome(CycleFactory(watch=watch, outcome=outcome))
    watch.refresh_from_db()
    return watch


ENDINGS = {
    (Outcome.HEALTHY, Status.COMPLETED): CycleEvidence.WORKED,
    (Outcome.FIXED, Status.COMPLETED): CycleEvidence.WORKED,
    (Outcome.COULD_NOT_RUN, Status.FAILED): CycleEvidence.FAILED,
    (Outcome.COULD_NOT_RUN, Status.EXPIRED): CycleEvidence.FAILED,
    (Outcome.NEEDS_PERSON, Status.FAILED): CycleEvidence.FAILED,
    (Outcome.NEEDS_PERSON, Status.TIMED_OUT): CycleEvidence.FAILED,
    (Outcome.NEEDS_PERSON, Status.INTERRUPTED): CycleEvidence.FAILED,
    (Outcome.NEEDS_PERSON, Status.EXPIRED): CycleEvidence.FAILED,
    (Outcome.NEEDS_PERSON, Status.CANCELLED): CycleEvidence.NONE,
}


@each_row(("ending", "evidence"), ENDINGS.items())
def test_evidence_of_the_end_of_a_cycle(ending, evidence):
    outcome, status = ending

    assert evidence_of(outcome, LastRun(status=status)) == evidence


@pytest.mark.parametrize("status", Session.GOOD_STATUSES)
@pytest.mark.parametrize(("has_report", "evidence"), [(True, "worked"), (False, "failed")])
def test_a_valid_report_that_asks_for_a_person_is_no_failure(status, has_report, evidence):
    last = LastRun(status=status, has_report=has_report)

    assert evidence_of(Outcome.NEEDS_PERSON, last) == evidence


def test_a_stopped_session_is_no_evidence():
    last = LastRun(status=Status.INTERRUPTED, by_no_fault=True)

    assert evidence_of(Outcome.NEEDS_PERSON, last) == CycleEvidence.NONE


@pytest.mark.parametrize("status", [Status.FAILED, Status.TIMED_OUT])
def test_a_session_that_failed_before_it_was_stopped_counts(status):
    last = LastRun(status=status, by_no_fault=True)

    assert evidence_of(Outcome.NEEDS_PERSON, last) == CycleEvidence.FAILED


def test_a_cycle_without_a_session_has_failed():
    assert evidence_of(Outcome.NEEDS_PERSON, None) == CycleEvidence.FAILED


@pytest.mark.django_db
def test_consecutive_failures_are_counted():
    watch = fail(WatchFactory(), 2)

    assert (watch.failures_in_a_row, watch.is_backed_off) == (2, False)


@pytest.mark.django_db
def test_the_third_failure_delays_the_watch():
    with time_machine.travel(NOW, tick=False):
        watch = fail(WatchFactory(interval_minutes=60), 3)

    assert watch.backed_off_until == NOW + 2 * HOUR


@pytest.mark.django_db
@pytest.mark.parametrize("outcome", [Outcome.HEALTHY, Outcome.FIXED])
def test_a_cycle_that_ended_well_closes_the_breaker(outcome):
    watch = fail(WatchFactory(), 4)

    fail(watch, outcome=outcome)

    assert (watch.failures_in_a_row, watch.backed_off_until) == (0, None)


@pytest.mark.django_db
def test_a_stopped_run_neither_closes_the_breaker_nor_counts():
    watch = fail(WatchFactory(), 4)
    cycle = CycleFactory(watch=watch, outcome=Outcome.NEEDS_PERSON)
    SessionFactory(cycle=cycle, status=Status.INTERRUPTED, stop_cause=Session.StopCause.PERSON)

    note_outcome(cycle)

    watch.refresh_from_db()
    assert (watch.failures_in_a_row, watch.is_backed_off) == (4, True)


@pytest.mark.django_db
@pytest.mark.parametrize("purpose", ["plan", "follow_up"])
@pytest.mark.parametrize("ended", [{"failed": True}, {"report": dict(HEALTHY)}])
def test_a_plan_or_a_question_neither_closes_the_breaker_nor_counts(purpose, ended):
    watch = fail(WatchFactory(), 4)
    cycle = CycleFactory(watch=watch, outcome=Outcome.NEEDS_PERSON)
    SessionFactory(cycle=cycle, tier=2, status=Status.CANCELLED)
    SessionFactory(cycle=cycle, tier=2, purpose=purpose, **ended)

    note_outcome(cycle)

    watch.refresh_from_db()
    assert watch.failures_in_a_row == 4


@pytest.mark.django_db
def test_the_last_session_of_the_cycle_counts():
    cycle = CycleFactory(outcome=Outcome.NEEDS_PERSON)
    SessionFactory(cycle=cycle, failed=True)
    SessionFactory(cycle=cycle, purpose="retry", report=dict(HEALTHY))

    note_outcome(cycle)

    cycle.watch.refresh_from_db()
    assert cycle.watch.failures_in_a_row == 0


def ran_cycles(watch: Watch, count: int) -> Watch:
    """Cycles run to their end, one after the other, by the real runner."""
    for _ in range(count):
        cycle = cycles.start(watch, trigger=Cycle.Trigger.MANUAL)
        while waiting := cycle.sessions.filter(status=Status.QUEUED).first():
            run(waiting)
    watch.refresh_from_db()
    return watch


BROKEN_RUNS = {
    "fails after one answer": "init(); say(); sys.exit(1)",
    "fails before any answer": "init(); sys.exit(1)",
    "gives no report, even when asked": "init(); say(); result(None)",
    "says nothing any more": "init(); say(); time.sleep(60)",
}


@pytest.mark.django_db
@pytest.mark.parametrize("program", BROKEN_RUNS.values(), ids=BROKEN_RUNS)
def test_cycles_without_a_usable_result_delay_the_watch(program, fake_cli, workdir, settings):
    settings.CLAUDEOPS_IDLE_TIMEOUT = 1
    settings.CLAUDEOPS_BREAKER_FAILURES = 2
    fake_cli.then(program)

    watch = ran_cycles(WatchFactory(workdir=str(workdir), max_tier=1), 2)

    assert (watch.failures_in_a_row, watch.is_backed_off) == (2, True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "report", [ESCALATE, a_report(services=(("web", "down"),))], ids=["asked for more", "unwell"]
)
def test_cycles_that_found_a_problem_do_not_delay_the_watch(report, fake_cli, workdir):
    fake_cli.reports(report)

    watch = ran_cycles(WatchFactory(workdir=str(workdir), max_tier=1), 4)

    assert set(watch.cycles.values_list("outcome", flat=True)) == {Outcome.NEEDS_PERSON}
    assert (watch.failures_in_a_row, watch.backed_off_until) == (0, None)


@pytest.mark.django_db
def test_failures_of_one_watch_do_not_delay_another():
    other = WatchFactory()
    fail(WatchFactory(), 4)

    other.refresh_from_db()
    assert other.failures_in_a_row == 0


@pytest.mark.django_db
def test_a_drill_counts_for_no_watch():
    note_outcome(CycleFactory(drilled=True, outcome=Outcome.COULD_NOT_RUN))

    assert not Watch.objects.exists()


@pytest.mark.django_db
def test_the_end_of_a_cycle_is_counted():
    cycle = CycleFactory(running=True)

    finish_cycle(cycle, Outcome.COULD_NOT_RUN, "no CLI")

    cycle.watch.refresh_from_db()
    assert cycle.watch.failures_in_a_row == 1


@pytest.mark.django_db
def test_a_cycle_that_has_ended_is_not_counted_again():
    cycle = CycleFactory(running=True)
    for _ in range(2):
        finish_cycle(cycle, Outcome.COULD_NOT_RUN, "no CLI")

    cycle.watch.refresh_from_db()
    assert cycle.watch.failures_in_a_row == 1


@pytest.mark.django_db
def test_a_scheduled_cycle_is_skipped_during_back_off():
    watch = fail(WatchFactory(name="shop"), 3)

    said = tasks.start_scheduled_cycle(watch.pk)

    assert said.startswith("Watch shop was skipped: it failed 3 times in a row and waits until")
    assert watch.cycles.filter(state__in=Cycle.ACTIVE_STATES).count() == 0


@pytest.mark.django_db
def test_after_the_wait_the_schedule_runs_again():
    watch = fail(WatchFactory(interval_minutes=60), 3)

    with time_machine.travel(timezone.now() + 3 * HOUR):
        said = tasks.start_scheduled_cycle(watch.pk)

    assert "was started" in said


@pytest.mark.django_db
def test_a_watch_in_back_off_can_be_run_manually():
    watch = fail(WatchFactory(), 3)

    cycle = cycles.start(watch, trigger=Cycle.Trigger.MANUAL)

    assert cycle.is_active


@pytest.mark.django_db
def test_the_overview_shows_a_watch_in_back_off(operator_client):
    fail(WatchFactory(), 3)

    page = operator_client.get(reverse("web:overview")).content.decode()

    assert "backed off" in page
    assert "failed 3 times in a row" in page


@pytest.mark.django_db
def test_the_overview_shows_the_next_attempt_and_how_to_run_at_once(operator_client):
    with time_machine.travel(NOW.replace(hour=6, minute=20), tick=False):
        fail(WatchFactory(cron=EVERY_MORNING_HOUR), 3)
        page = operator_client.get(reverse("web:overview")).content.decode()

    words = " ".join(page.split())
    assert (
        "The schedule tries again at 2026-03-01 08:00 UTC; <b>Run now</b> tries at once." in words
    )


@pytest.mark.django_db
def test_the_time_shown_for_an_interval_is_the_first_due_time_after_the_wait(operator_client):
    """It waits until 14:00, but the schedule is due at 30 minutes past the hour."""
    with time_machine.travel(NOW, tick=False):
        watch = WatchFactory(interval_minutes=60)
        Schedule.objects.filter(name=schedule_name(watch)).update(
            next_run=NOW + timedelta(minutes=30)
        )
        fail(watch, 3)
        page = operator_client.get(reverse("web:overview")).content.decode()

    assert "tries again at 2026-03-01 14:30 UTC;" in page


@pytest.mark.django_db
def test_a_paused_watch_in_back_off_shows_no_next_attempt(operator_client):
    fail(WatchFactory(enabled=False), 3)

    page = operator_client.get(reverse("web:overview")).content.decode()

    assert "failed 3 times in a row" in page
    assert "The schedule tries again" not in page


@pytest.mark.django_db
def test_the_overview_shows_no_back_off_for_a_healthy_watch(operator_client):
    fail(WatchFactory(), 2)

    page = operator_client.get(reverse("web:overview")).content.decode()

    assert "backed off" not in page
