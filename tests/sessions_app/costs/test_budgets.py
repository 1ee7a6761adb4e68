"""Budgets and the forecast, as pure functions: tables and properties."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.costs.budgets import (
    SETTINGS,
    WHOSE,
    Budget,
    Scope,
    Spent,
    first_spent,
    forecast,
    least_left,
    start_of_day,
    start_of_month,
)
from tests.tables import each_row

amounts = st.decimals(min_value=0, max_value=10**6, places=4)
days = st.dates(min_value=date(2020, 1, 1), max_value=date(2040, 12, 31))


def budget(
    limit: object, spent: object = 0, scope: Scope = Scope.DAY, guessed: object = 0
) -> Budget:
    return Budget(
        scope=scope,
        limit=Decimal(str(limit)),
        spent=Spent(total=Decimal(str(spent)), guessed=Decimal(str(guessed))),
        name=scope.value,
    )


@each_row(
    ("limit", "spent", "left", "tone"),
    [
        (10, 0, 10, "good"),
        (10, "7.99", "2.01", "good"),
        (10, 8, 2, "warn"),
        (10, "9.99", "0.01", "warn"),
        (10, 10, 0, "bad"),
        (10, 12, 0, "bad"),
        (0, 0, 0, "bad"),
        ("0.0001", 0, "0.0001", "good"),
    ],
)
def test_the_rest_and_the_tone_of_a_budget(limit, spent, left, tone):
    found = budget(limit, spent)

    assert (found.left, found.tone) == (Decimal(str(left)), tone)
    assert found.is_spent == (tone == "bad")


@given(limit=amounts, spent=amounts)
def test_rest_and_spent_are_consistent(limit, spent):
    found = budget(limit, spent)

    assert found.left >= 0
    assert found.is_spent == (found.left == 0)
    assert 0 <= found.share <= 1
    assert found.is_nearly_spent or not found.is_spent


@given(limit=amounts, spent=amounts, more=amounts)
def test_spending_more_never_increases_the_rest(limit, spent, more):
    assert budget(limit, spent + more).left <= budget(limit, spent).left


@given(st.lists(st.tuples(amounts, amounts), max_size=5))
def test_the_smallest_rest_counts_and_a_spent_budget_is_found(pairs):
    budgets = [budget(limit, spent) for limit, spent in pairs]

    assert least_left(budgets) == min((each.left for each in budgets), default=None)
    assert (first_spent(budgets) is not None) == any(each.left == 0 for each in budgets)


@pytest.mark.parametrize("scope", Scope)
def test_a_refusal_names_the_setting_and_marks_estimates(scope):
    told = budget(2, "2.50", scope, guessed="0.40").refusal

    assert told.startswith(
        f"$2.50 of the $2.00 for {WHOSE[scope]} is spent, $0.40 of it estimated."
    )
    assert SETTINGS[scope] in told


BERLIN = ZoneInfo("Europe/Berlin")


@each_row(
    ("now", "day", "month"),
    [
        # 23:30 in UTC is the next day, and the next month, in Berlin
        ("2026-03-31T22:30", "2026-03-31T22:00", "2026-03-31T22:00"),
        ("2026-03-31T21:59", "2026-03-30T22:00", "2026-02-28T23:00"),
        # the hour that is not there, and the one that is there twice
        ("2026-03-29T01:30", "2026-03-28T23:00", "2026-02-28T23:00"),
        ("2026-10-25T01:30", "2026-10-24T22:00", "2026-09-30T22:00"),
        ("2026-12-31T23:00", "2026-12-31T23:00", "2026-12-31T23:00"),
    ],
)
def test_days_and_months_begin_in_the_time_zone_of_the_installation(now, day, month):
    moment = datetime.fromisoformat(now).replace(tzinfo=UTC)

    assert start_of_day(moment, BERLIN) == datetime.fromisoformat(day).replace(tzinfo=UTC)
    assert start_of_month(moment, BERLIN) == datetime.fromisoformat(month).replace(tzinfo=UTC)


@given(st.datetimes(timezones=st.just(BERLIN)))
def test_a_period_has_begun_and_is_not_over(now):

    assert start_of_month(now, BERLIN) <= start_of_day(now, BERLIN) <= now
    assert now - start_of_day(now, BERLIN) < timedelta(hours=25)


@each_row(
    ("spent", "week", "first", "today", "low", "high"),
    [
        ("10", "7", None, date(2026, 4, 10), "30", "30"),
        ("10", "14", None, date(2026, 4, 10), "30", "50"),
        ("10", "0", None, date(2026, 4, 10), "10", "30"),
        ("0", "0", None, date(2026, 4, 1), "0", "0"),
        ("30", "7", None, date(2026, 4, 30), "30", "30"),
        # the first run was three days ago: three days are known, not seven and not ten
        ("3", "3", date(2026, 4, 8), date(2026, 4, 10), "23", "23"),
        # a clock that was set back
        ("3", "3", date(2026, 5, 8), date(2026, 4, 10), "63", "63"),
    ],
)
def test_the_forecast_of_a_month(spent, week, first, today, low, high):
    expected = forecast(Decimal(spent), Decimal(week), first, today)

    assert (expected.low, expected.high) == (Decimal(low), Decimal(high))


@given(spent=amounts, week=amounts, first=st.none() | days, today=days)
def test_a_forecast_is_never_below_what_is_spent_and_exact_on_the_last_day(
    spent, week, first, today
):
    expected = forecast(spent, week, first, today)
    last = (today.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)

    assert spent <= expected.low <= expected.high
    assert forecast(spent, week, first, last).high == spent
