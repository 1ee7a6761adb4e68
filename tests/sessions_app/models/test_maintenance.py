"""Maintenance windows: once, weekly by the local clock, and until they are ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ValidationError

from sessions_app.models import Maintenance
from tests.tables import each_row

START = datetime(2026, 11, 1, 2, 0, tzinfo=UTC)
HOUR, WEEK = timedelta(hours=1), timedelta(days=7)


@each_row(
    "ends, weekly, after, holds",
    [
        (HOUR, False, -HOUR, False),
        (HOUR, False, timedelta(0), True),
        (HOUR, False, HOUR, False),
        (None, False, 1000 * HOUR, True),
        (HOUR, True, 3 * WEEK + HOUR / 2, True),
        (HOUR, True, 3 * WEEK + HOUR, False),
        (HOUR, True, -WEEK, False),
        (HOUR, True, 3 * HOUR, False),
    ],
)
def test_a_window_holds_between_start_and_end(ends, weekly, after, holds):
    window = Maintenance(starts_at=START, ends_at=START + ends if ends else None, is_weekly=weekly)

    assert window.holds(START + after) == holds


def test_a_weekly_window_follows_the_local_clock_through_summer_time(settings):
    settings.TIME_ZONE = "Europe/Berlin"
    at_two = datetime(2026, 10, 18, 0, 30, tzinfo=UTC)  # 02:30 in summer
    window = Maintenance(starts_at=at_two, ends_at=at_two + HOUR, is_weekly=True)

    assert window.holds(datetime(2026, 11, 1, 1, 45, tzinfo=UTC))  # 02:45 in winter
    assert not window.holds(datetime(2026, 11, 1, 0, 45, tzinfo=UTC))


@pytest.mark.parametrize(
    ("ends", "weekly"), [(None, True), (-HOUR, False), (timedelta(0), False), (2 * WEEK, True)]
)
def test_an_impossible_window_is_refused(ends, weekly):
    window = Maintenance(
        starts_at=START, ends_at=None if ends is None else START + ends, is_weekly=weekly
    )

    with pytest.raises(ValidationError):
        window.clean()
