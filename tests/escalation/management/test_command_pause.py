"""`claudeops pause` and `unpause`."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django_q.models import OrmQ

from sessions_app.models import PauseSwitch, Session
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db


def command(*arguments: str) -> str:
    said = StringIO()
    call_command(*arguments, stdout=said)
    return said.getvalue().strip()


def test_pause_stops_all_new_tiers():
    said = command("pause", "new disks")

    assert said == "Paused: no new tier starts. 0 running tiers were asked to stop."
    assert PauseSwitch.current().reason == "new disks"


def test_pause_without_a_reason_is_recorded_as_manual():
    command("pause")

    assert PauseSwitch.current().reason == "by hand"


def test_pause_does_not_stop_running_tiers():
    session = SessionFactory(running=True)

    command("pause", "x")

    session.refresh_from_db()
    assert session.stop_requested == ""


def test_pause_can_stop_running_tiers():
    session = SessionFactory(running=True)

    said = command("pause", "fire", "--stop-running")

    session.refresh_from_db()
    assert "1 running tiers" in said
    assert session.stop_requested == "paused: fire"


def test_unpause_lets_tiers_start_again():
    SessionFactory(status=Session.Status.QUEUED)
    command("pause")

    assert command("unpause") == "Running again. Sessions that were waiting: 1."
    assert not PauseSwitch.is_on()
    assert OrmQ.objects.count() == 1


def test_unpause_without_a_pause_changes_nothing():
    assert command("unpause") == "Running again. Sessions that were waiting: 0."
    assert not PauseSwitch.is_on()
