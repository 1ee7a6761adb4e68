"""The text that describes an incident."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.utils import timezone

from sessions_app.history.incidents import SNOOZES, snooze_until, wish_of
from sessions_app.models import Incident
from sessions_app.models.incident import UNVERIFIED_AFTER
from tests.factories import IncidentFactory, UserFactory

State, Kind = Incident.State, Incident.Kind
NIGHT = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize("name", SNOOZES)
def test_every_snooze_period_ends_in_the_future(name):
    until = snooze_until(name, NIGHT)

    assert until is not None
    assert until > NIGHT


def test_tomorrow_is_the_next_morning_in_local_time(settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    with timezone.override("Asia/Tokyo"):
        until = snooze_until("tomorrow", NIGHT)

    assert until == datetime(2026, 3, 2, 23, 0, tzinfo=UTC)


def test_an_unknown_period_is_none():
    assert snooze_until("nonsense", NIGHT) is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "it has no owner yet"),
        ({"kind": Kind.COULD_NOT_RUN}, "Correct the configuration."),
        ({"kind": Kind.COULD_NOT_RUN, "detail": "Set the key."}, "configuration: Set the key."),
        ({"state": State.WORKING}, "a chain is working"),
        ({"state": State.VERIFYING}, "is verifying the fix"),
        ({"state": State.VERIFYING, "verify_at": NIGHT}, "verifies the fix at 2026-03-01"),
        ({"healthy_cycles": 1}, "one more resolves it"),
        ({"snoozed_until": NIGHT + timedelta(days=9000)}, "it is snoozed"),
        ({"state": State.ACKNOWLEDGED, "snoozed_until": NIGHT}, "it was snoozed until 2026-03-01"),
        ({"times_reopened": 1, "remedy": "restarted web"}, "fix failed: restarted web"),
        ({"verifications_tried": 3}, "no cycle could"),
        ({"watch": None, "scope": "watch:9"}, "its watch was removed"),
        ({"state": State.RESOLVED, "resolved_as": "agent"}, "fixed by the agent"),
    ],
)
def test_one_line_names_the_next_task(facts, words):
    with time_machine.travel(NIGHT):
        assert words in wish_of(IncidentFactory(**facts))


@pytest.mark.django_db
def test_the_owner_is_named():
    ada = UserFactory(username="ada")

    assert wish_of(IncidentFactory(state=State.ACKNOWLEDGED, owner=ada)) == "ada owns it."
    ada.is_active = False
    assert "owner ada is disabled" in wish_of(IncidentFactory(state=State.ACKNOWLEDGED, owner=ada))


@pytest.mark.django_db
def test_a_fix_whose_verification_is_overdue_needs_a_person():
    fix = IncidentFactory(state=State.VERIFYING, verify_at=NIGHT)

    with time_machine.travel(NIGHT + UNVERIFIED_AFTER - timedelta(seconds=1)):
        assert wish_of(fix).startswith("Nothing yet")
        assert not fix.asks_for_person
    with time_machine.travel(NIGHT + UNVERIFIED_AFTER):
        assert "not verified" in wish_of(fix)
        assert fix.asks_for_person
