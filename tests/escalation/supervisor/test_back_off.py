"""The waiting time of a watch after repeated failures: the pure part of the circuit breaker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from croniter import croniter
from django.utils import timezone
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from escalation.supervisor.breaker import LONGEST_WAIT, back_off_until
from sessions_app.models import Watch

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NIGHTLY, EVERY_MORNING_HOUR = "0 3 * * *", "0 6-11 * * *"


def failing(failures: int, minutes: int = 60, cron: str = "") -> Watch:
    return Watch(name="shop", interval_minutes=minutes, cron=cron, failures_in_a_row=failures)


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_below_the_limit_there_is_no_back_off(failures):
    assert back_off_until(failing(failures), NOW) is None


@pytest.mark.parametrize(("failures", "hours"), [(3, 2), (4, 4), (5, 8), (6, 16)])
def test_from_the_limit_on_the_wait_doubles(failures, hours):
    assert back_off_until(failing(failures), NOW) == NOW + hours * HOUR


@pytest.mark.parametrize("failures", [7, 8, 50, 10**6])
def test_the_wait_has_a_cap(failures):
    assert back_off_until(failing(failures), NOW) == NOW + LONGEST_WAIT


def test_the_wait_grows_with_the_interval_of_the_watch():
    assert back_off_until(failing(3, minutes=5), NOW) == NOW + timedelta(minutes=10)


def test_a_watch_that_runs_once_a_day_or_less_is_not_backed_off_further():
    assert back_off_until(failing(9, minutes=24 * 60), NOW) is None


@pytest.mark.parametrize(
    ("failures", "hour"), [(3, 8), (4, 9), (5, 11)], ids=["one", "two", "four"]
)
def test_a_cron_watch_skips_its_own_due_times(failures, hour):
    """It failed at 6:20; its next due times are 7, 8, 9, 10 and 11 o'clock."""
    now = NOW.replace(hour=6, minute=20)

    until = back_off_until(failing(failures, cron=EVERY_MORNING_HOUR), now)

    assert until == NOW.replace(hour=hour)


def test_a_cron_watch_skips_due_times_for_a_day_at_most():
    """Not 30 hours: the last due time within a day."""
    now = NOW.replace(hour=6, minute=20)

    until = back_off_until(failing(9, cron=EVERY_MORNING_HOUR), now)

    assert until == NOW.replace(day=2, hour=6)


@pytest.mark.parametrize("failures", [3, 4, 20])
def test_a_cron_watch_waits_for_its_next_due_time_at_least(failures):
    now = NOW.replace(hour=3, minute=0, second=20)

    assert back_off_until(failing(failures, cron=NIGHTLY), now) == NOW.replace(day=2, hour=3)


def test_the_due_times_of_a_cron_watch_are_local_ones(settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    with timezone.override("Asia/Tokyo"):
        until = back_off_until(failing(3, cron=NIGHTLY), NOW)

    assert until == datetime(2026, 3, 1, 18, tzinfo=UTC)


def test_a_cron_watch_that_is_never_due_is_not_backed_off():
    assert back_off_until(failing(3, cron="0 0 30 2 *"), NOW) is None


@given(
    st.integers(3, 2**31 - 1),
    st.sampled_from(["* * * * *", "*/7 8-17 * * 1-5", NIGHTLY, "0 0 1 * *", "0 0 29 2 *"]),
    st.integers(0, 5 * 365 * 24 * 3600),
)
@hypothesis_settings(database=None, deadline=None, max_examples=30)
def test_any_cron_watch_is_tried_again_at_a_due_time_within_a_day_or_at_its_next(
    failures, cron, seconds
):
    now = NOW + timedelta(seconds=seconds)

    until = back_off_until(failing(failures, cron=cron), now)

    first = croniter(cron, now).get_next(datetime)
    assert croniter.match(cron, until)
    assert until is not None
    assert until == first or first < until <= now + LONGEST_WAIT


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
