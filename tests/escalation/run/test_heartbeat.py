"""Heartbeats of a runner, and its end when they can no longer be stored."""

from __future__ import annotations

import pytest

from escalation.run import runner as heartbeat_module
from escalation.run.recovery import FOREIGN_SILENCE
from escalation.run.runner import CUT_OFF, LEASE_SECONDS, TAKEN_OVER, Heartbeat, this_runner
from sessions_app.models import Session
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db


class AnyDatabase:
    """The lease is for databases that several hosts share."""

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor


@pytest.fixture
def running() -> Session:
    return SessionFactory(running=True, **this_runner())


def due(heartbeat: Heartbeat) -> Heartbeat:
    heartbeat._next_beat = 0.0
    return heartbeat


def test_a_heartbeat_is_stored(running):
    heartbeat = due(Heartbeat(running))

    assert heartbeat.beat()
    running.refresh_from_db()
    assert running.heartbeat_at is not None
    assert heartbeat.lost is None


def test_a_session_that_another_process_has_recovered_stops(running):
    heartbeat = due(Heartbeat(running))
    Session.objects.update(runner_pid=1, runner_started=1)

    heartbeat.beat()

    assert heartbeat.lost is not None
    assert heartbeat.lost.words == TAKEN_OVER


def test_the_heartbeat_of_another_runner_is_not_changed(running):
    Session.objects.update(runner_pid=1, runner_started=1, heartbeat_at=None)

    due(Heartbeat(running)).beat()

    running.refresh_from_db()
    assert running.heartbeat_at is None


@pytest.mark.parametrize(("vendor", "stops"), [("postgresql", True), ("sqlite", False)])
def test_a_runner_without_database_stops_before_the_session_is_recovered(
    running, monkeypatch, vendor, stops
):
    monkeypatch.setattr(heartbeat_module, "connection", AnyDatabase(vendor))
    heartbeat = Heartbeat(running)
    heartbeat._last_stored -= LEASE_SECONDS + 1

    assert bool(heartbeat.lost and heartbeat.lost.words == CUT_OFF) is stops


def test_the_lease_is_shorter_than_the_silence_before_a_recovery():
    assert FOREIGN_SILENCE.total_seconds() > LEASE_SECONDS + 10
