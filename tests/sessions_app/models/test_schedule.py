"""A schedule described in words, and its next times."""

from __future__ import annotations

import re
from calendar import day_name, month_name
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sessions_app.models.watch import cron_words, interval_words, next_times
from tests.tables import each_row

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday
MONTHS = list(month_name)[1:]
DAYS = [day_name[6], *list(day_name)[:6]]
BERLIN = ZoneInfo("Europe/Berlin")


@each_row(
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
def test_an_interval_is_described_in_words(minutes, words):
    assert interval_words(minutes) == words


@each_row(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0 * * * *", "every hour"),
        ("20 * * * *", "at 20 minutes past the hour"),
        ("0 */6 * * *", "every 6 hours"),
        ("5 */6 * * *", "at 5 minutes past the hour, every 6 hours"),
        ("0 3 * * *", "at 03:00, every day"),
        (" 30  8,20 * * * ", "at 08:30 and 20:30, every day"),
        ("0 3 * * 1-5", "at 03:00, Monday through Friday"),
        ("0 3 * * sat,sun", "at 03:00, only on Saturday and Sunday"),
        ("0 3 * * 0", "at 03:00, only on Sunday"),
        ("0 3 * * 7", "at 03:00, only on Sunday"),
        ("0 3 * * fri,mon", "at 03:00, only on Friday and Monday"),
        ("0 3 1 * *", "at 03:00, on day 1 of the month"),
        ("0 3 * 6 *", "at 03:00, every day, only in June"),
        ("0 9-17 * * *", "at 0 minutes past the hour, between 09:00 and 17:59"),
        ("@daily", "at 00:00, every day"),
        ("@hourly", "every hour"),
    ],
)
def test_a_common_cron_expression_is_described_in_words(expression, words):
    assert cron_words(expression) == words


@each_row(
    "expression",
    [
        "*/7 * * * *",  # begins anew in each hour: not every 7 minutes
        "0 */5 * * *",
        "0 3 1 * 1",  # on the first *or* on Mondays
        "0 0 */2 * *",  # begins anew in each month
        "0 3 * * 3-3",  # every day, for croniter
        "0 3 * * 0-7",
        "0 24 * * *",
        "0 3 L * *",
        "0 3 * * 1#2",
        "1-5 3 * * *",
        "0 3 * * * 30",
        "not cron at all",
        "",
    ],
)
def test_an_uncertain_expression_is_shown_unchanged(expression):
    assert cron_words(expression) == f"cron {expression}"


def numbers(lowest: int, highest: int) -> st.SearchStrategy[str]:
    """Fields of a cron expression, a few of them invalid."""
    number = st.integers(lowest, highest + 1).map(str)
    return st.one_of(
        *(st.just("*"), st.just("*"), st.just("*"), number, number),
        st.lists(number, min_size=2, max_size=3).map(",".join),
        st.tuples(number, number).map("-".join),
        st.integers(1, highest).map(lambda step: f"*/{step}"),
    )


def cycle_range(first: int, last: int, lowest: int, highest: int) -> set[int]:
    after = set(range(first, highest + 1)) | set(range(lowest, last + 1))
    return set(range(first, last + 1)) if first <= last else after


def named(words: str, names: Sequence[str], first: int) -> set[int]:
    """The numbers of the names in the words; all of them where there is none."""
    one = "|".join(names)
    if ends := re.search(rf"({one}) through ({one})", words):
        first_name, last_name = (names.index(name) + first for name in ends.groups())
        return cycle_range(first_name, last_name, first, len(names) - 1 + first)
    found = {names.index(name) + first for name in re.findall(one, words)}
    return found or set(range(first, len(names) + first))


def steps(step: int, whole: int) -> set[int]:
    """`every 7 minutes` would promise equal distances, which cron does not keep."""
    assert whole % step == 0
    return set(range(0, whole, step))


def read_time(words: str) -> tuple[set[int], set[int]]:
    minutes, hours = {0}, set(range(24))
    if times := re.search(r"^at (\d\d:\d\d.*)", words):
        found = re.findall(r"(\d\d):(\d\d)", times[1])
        return {int(minute) for _hour, minute in found}, {int(hour) for hour, _minute in found}
    if past := re.search(r"at (\d+) minutes? past the hour", words):
        minutes = {int(past[1])}
    if step := re.search(r"every (\d+ )?minute", words):
        minutes = steps(int(step[1] or 1), 60)
    if step := re.search(r"every (\d+) hours", words):
        hours = steps(int(step[1]), 24)
    if between := re.search(r"between (\d\d):00 and (\d\d):59", words):
        hours = cycle_range(int(between[1]), int(between[2]), 0, 23)
    return minutes, hours


def read_days(words: str) -> set[int]:
    if between := re.search(r"between day (\d+) and (\d+) of", words):
        return cycle_range(int(between[1]), int(between[2]), 1, 31)
    listed = re.search(r"on day (.*?) of the month", words)
    return {int(day) for day in re.findall(r"\d+", listed[1])} if listed else set(range(1, 32))


# Most of what is made up has no words, which is no reason to end the test.
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    fields=st.tuples(
        *(numbers(*ends) for ends in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))),
    )
)
def test_descriptions_agree_with_the_times_of_croniter(fields):
    expression = " ".join(fields)
    words = cron_words(expression)
    assume(words != f"cron {expression}")
    *time_and_days, months, weekdays = [
        set(range(*every)) if values == ["*"] else set(values)
        for values, every in zip(
            croniter.expand(expression)[0],
            ((0, 60), (0, 24), (1, 32), (1, 13), (0, 7)),
            strict=True,
        )
    ]

    assert [*read_time(words), read_days(words)] == time_and_days
    assert named(words, MONTHS, 1) == months
    assert named(words, DAYS, 0) == weekdays


def test_the_next_times_of_an_interval_start_with_the_due_one():
    due = NOON + timedelta(minutes=10)

    times = next_times(cron="", interval_minutes=30, due=due, after=NOON)

    assert [f"{time:%H:%M}" for time in times] == ["12:10", "12:40", "13:10"]


def test_skipped_times_are_not_shown():
    """The watch is backed off, or nobody was there to start it."""
    due = NOON - timedelta(minutes=50)

    times = next_times(cron="", interval_minutes=30, due=due, after=NOON)

    assert [f"{time:%H:%M}" for time in times] == ["12:10", "12:40", "13:10"]


def test_cron_uses_local_time_across_daylight_saving_changes():
    evening = datetime(2026, 3, 27, 22, 0, tzinfo=BERLIN)

    times = next_times(cron="0 4 * * *", interval_minutes=1, due=NOON, after=evening)

    assert [f"{time:%d %H:%M %Z}" for time in times] == [
        "28 04:00 CET",
        "29 04:00 CEST",
        "30 04:00 CEST",
    ]


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "nonsense"])
def test_an_expression_that_never_matches_has_no_times(cron):
    assert next_times(cron=cron, interval_minutes=1, due=NOON, after=NOON) == ()
