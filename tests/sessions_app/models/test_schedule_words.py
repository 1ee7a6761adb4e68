"""A schedule in words where the words surely say the same, and its next times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from sessions_app.models.schedule_words import cron_words, interval_words, next_times

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        (1, "every minute"),
        (30, "every 30 minutes"),
        (60, "every hour"),
        (90, "every 90 minutes"),
        (360, "every 6 hours"),
        (1440, "every day"),
        (2880, "every 2 days"),
    ],
)
def test_an_interval_in_words(minutes, words):
    assert interval_words(minutes) == words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0 * * * *", "every hour"),
        ("20 * * * *", "every hour at minute 20"),
        ("0 */6 * * *", "every 6 hours"),
        ("5 */6 * * *", "every 6 hours at minute 5"),
        ("0 3 * * *", "at 03:00 every day"),
        (" 30  8,20 * * * ", "at 08:30 and 20:30 every day"),
        ("0 3 * * 1-5", "at 03:00 from Monday to Friday"),
        ("0 3 * * sat,sun", "at 03:00 on Saturday and Sunday"),
        ("0 3 * * 0", "at 03:00 every Sunday"),
        ("0 3 * * 7", "at 03:00 every Sunday"),
        ("0 3 * * fri,mon", "at 03:00 every Monday and Friday"),
        ("0 3 1 * *", "at 03:00 on day 1 of the month"),
        ("@daily", "at 00:00 every day"),
        ("@hourly", "every hour"),
    ],
)
def test_a_usual_cron_expression_in_words(expression, words):
    assert cron_words(expression) == words


@pytest.mark.parametrize(
    "expression",
    [
        "*/7 * * * *",  # begins anew in each hour: not every 7 minutes
        "0 */5 * * *",
        "0 3 1 * 1",  # on the first *or* on Mondays
        "0 3 * 6 *",
        "0 3 L * *",
        "0 3 * * 1#2",
        "1-5 3 * * *",
        "0 3 * * * 30",
        "0 1,2,3,4,5 * * *",
        "not cron at all",
        "",
    ],
)
def test_what_is_not_surely_understood_is_shown_as_it_is(expression):
    assert cron_words(expression) == f"cron {expression}"


@pytest.mark.parametrize("expression", ["*/15 * * * *", "0 */6 * * *", "*/30 * * * *"])
def test_every_so_often_is_true_of_each_pair_of_times(expression):
    words = cron_words(expression).removeprefix("every ").split()
    step = timedelta(**{words[1]: int(words[0])})
    times = croniter(expression, NOON)
    found = [times.get_next(datetime) for _number in range(200)]

    assert {later - earlier for earlier, later in zip(found, found[1:], strict=False)} == {step}


def test_the_next_times_of_an_interval_go_on_from_what_is_due():
    due = NOON + timedelta(minutes=10)

    times = next_times(cron="", interval_minutes=30, due=due, after=NOON)

    assert [f"{time:%H:%M}" for time in times] == ["12:10", "12:40", "13:10"]


def test_times_that_are_skipped_are_not_shown():
    """The watch is backed off, or nobody was there to start it."""
    due = NOON - timedelta(minutes=50)

    times = next_times(cron="", interval_minutes=30, due=due, after=NOON)

    assert [f"{time:%H:%M}" for time in times] == ["12:10", "12:40", "13:10"]


def test_cron_means_local_time_across_the_change_of_clocks():
    evening = datetime(2026, 3, 27, 22, 0, tzinfo=BERLIN)

    times = next_times(cron="0 4 * * *", interval_minutes=1, due=NOON, after=evening)

    assert [f"{time:%d %H:%M %Z}" for time in times] == [
        "28 04:00 CET",
        "29 04:00 CEST",
        "30 04:00 CEST",
    ]


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "nonsense"])
def test_an_expression_without_a_time_has_none(cron):
    assert next_times(cron=cron, interval_minutes=1, due=NOON, after=NOON) == ()
