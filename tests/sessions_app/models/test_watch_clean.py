"""Validation of a watch reports all errors at once, each at its field."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError

from tests.factories import WatchFactory


def test_all_invalid_fields_are_reported_at_once(tmp_path):
    watch = WatchFactory.build(
        workdir=str(tmp_path / "nowhere"),
        cron="sometimes",
        approval="9",
        ask="rm everything",
        grants="catflap",
        budget_day_usd=Decimal(-1),
    )

    with pytest.raises(ValidationError) as refused:
        watch.clean()

    assert set(refused.value.message_dict) == {
        *("workdir", "cron", "approval", "ask", "grants", "budget_day_usd"),
    }


def test_a_valid_watch_is_accepted(tmp_path):
    WatchFactory.build(workdir=str(tmp_path), cron="0 3 * * *").clean()
