"""The circuit breaker: a watch that fails again and again is asked less often, and says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from escalation import tasks
from escalation.next_step import cycles
from escalation.next_step.breaker import LONGEST_WAIT, back_off_until, note_outcome
from escalation.next_step.conclude import finish_cycle
from sessions_app.models import Cycle, Watch
from tests.factories import CycleFactory, WatchFactory

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
Outcome = Cycle.Outcome


def failing(failures: int, minutes: int = 60) -> Watch:
    return Watch(name="shop", interval_minutes=minutes, failures_in_a_row=failures)


def fail(watch: Watch, times: int = 1, outcome: str = Outcome.COULD_NOT_RUN) -> Watch:
    for _ in range(times):
        note_outcome(CycleFactory(watch=watch, outcome=outcome))
    watch.refresh_from_db()
    return watch


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_below_the_limit_nothing_is_backed_off(failures):
    assert back_off_until(failing(failures), NOW) is None


@pytest.mark.parametrize(("failures", "hours"), [(3, 2), (4, 4), (5, 8), (6, 16)])
def test_from_the_limit_on_the_wait_doubles(failures, hours):
    assert back_off_until(failing(failures), NOW) == NOW + hours * HOUR


@pytest.mark.parametrize("failures", [7, 8, 50, 10**6])
def test_the_wait_has_a_cap(failures):
    assert back_off_until(failing(failures), NOW) == NOW + LONGEST_WAIT


def test_the_wait_grows_with_the_rhythm_of_the_watch():
    assert back_off_until(failing(3, minutes=5), NOW) == NOW + timedelta(minutes=10)


def test_the_limit_is_a_setting(settings):
    settings.CLAUDEOPS_BREAKER_FAILURES = 1

    assert back_off_until(failing(1), NOW) == NOW + 2 * HOUR


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
@hypothesis_settings(database=None, deadline=None)
def test_any_watch_that_can_be_stored_gets_an_answer_within_the_cap(failures, minutes):
    until = back_off_until(failing(failures, minutes), NOW)

    assert until is None or NOW < until <= NOW + LONGEST_WAIT


@given(st.integers(0, 100))
@hypothesis_settings(database=None, deadline=None)
def test_one_more_failure_never_shortens_the_wait(failures):
    first, second = (back_off_until(failing(n), NOW) for n in (failures, failures + 1))

    assert (first or NOW) <= (second or NOW)


@pytest.mark.django_db
def test_failures_in_a_row_are_counted():
    watch = fail(WatchFactory(), 2)

    assert (watch.failures_in_a_row, watch.is_backed_off) == (2, False)


@pytest.mark.django_db
def test_the_third_failure_backs_the_watch_off():
    with time_machine.travel(NOW, tick=False):
        watch = fail(WatchFactory(interval_minutes=60), 3)

    assert watch.backed_off_until == NOW + 2 * HOUR


@pytest.mark.django_db
@pytest.mark.parametrize("outcome", [Outcome.HEALTHY, Outcome.FIXED, Outcome.NEEDS_PERSON])
def test_a_cycle_that_could_run_closes_the_breaker(outcome):
    watch = fail(WatchFactory(), 4)

    fail(watch, outcome=outcome)

    assert (watch.failures_in_a_row, watch.backed_off_until) == (0, None)


@pytest.mark.django_db
def test_one_watch_does_not_back_off_another():
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
def test_a_scheduled_cycle_of_a_backed_off_watch_is_skipped_with_a_sentence():
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
def test_a_backed_off_watch_can_still_be_run_by_hand():
    watch = fail(WatchFactory(), 3)

    cycle = cycles.start(watch, trigger=Cycle.Trigger.MANUAL, enqueue=cycles.leave_to_caller)

    assert cycle.is_active


@pytest.mark.django_db
def test_the_dashboard_says_so(operator_client):
    fail(WatchFactory(), 3)

    page = operator_client.get(reverse("sessions_app:dashboard")).content.decode()

    assert "backed off" in page
    assert "3 failures in a row" in page


@pytest.mark.django_db
def test_the_dashboard_is_silent_about_a_watch_that_runs(operator_client):
    fail(WatchFactory(), 2)

    page = operator_client.get(reverse("sessions_app:dashboard")).content.decode()

    assert "backed off" not in page
