"""Addresses of heartbeats: who may call them, and what is stored."""

from __future__ import annotations

import pytest
from django.test import Client

from sessions_app.models import HeartbeatPing, Probe
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db
Ping = HeartbeatPing.Kind


@pytest.fixture
def probe() -> Probe:
    return Probe.objects.create(
        watch=WatchFactory(), name="backup", service="backup", kind="heartbeat"
    )


@pytest.fixture
def stranger() -> Client:
    return Client(enforce_csrf_checks=True)


@pytest.mark.parametrize(
    ("method", "part", "kind", "code"),
    [
        ("get", "", Ping.SUCCESS, None),
        ("head", "", Ping.SUCCESS, None),
        ("post", "", Ping.SUCCESS, None),
        ("post", "/start", Ping.START, None),
        ("get", "/fail", Ping.FAIL, None),
        ("get", "/0", Ping.SUCCESS, 0),
        ("post", "/17", Ping.FAIL, 17),
    ],
)
def test_a_call_is_stored_without_a_login(probe, stranger, method, part, kind, code):
    answer = getattr(stranger, method)(f"/heartbeat/{probe.token}{part}")

    assert answer.status_code == 200
    ping = HeartbeatPing.objects.get()
    assert (ping.probe, ping.kind, ping.exit_code) == (probe, kind, code)


def test_the_body_is_kept_redacted_and_cut(probe, stranger):
    body = "password=hunter2secret\n" + "x" * 50_000

    stranger.post(f"/heartbeat/{probe.token}", data=body, content_type="text/plain")

    kept = HeartbeatPing.objects.get().body
    assert "hunter2secret" not in kept
    assert 9_000 < len(kept) <= 10_100


@pytest.mark.parametrize(
    ("address", "status"),
    [("{}x", 404), ("nonsense", 404), ("{}/256", 400), ("{}/delete", 400), ("{}/start/x", 404)],
)
def test_a_wrong_address_stores_nothing(probe, stranger, address, status):
    answer = stranger.get("/heartbeat/" + address.format(probe.token))

    assert answer.status_code == status
    assert not HeartbeatPing.objects.exists()


def test_other_methods_are_refused(probe, stranger):
    assert stranger.delete(f"/heartbeat/{probe.token}").status_code == 405


def test_the_token_of_another_kind_is_not_an_address(stranger):
    probe = Probe.objects.create(watch=WatchFactory(), name="web", service="web", kind="tcp")

    assert stranger.get(f"/heartbeat/{probe.token}").status_code == 404


def test_a_flood_is_one_call_a_second(probe, stranger):
    for _call in range(5):
        assert stranger.get(f"/heartbeat/{probe.token}").status_code == 200
    stranger.get(f"/heartbeat/{probe.token}/fail")

    assert HeartbeatPing.objects.filter(kind=Ping.SUCCESS).count() == 1
    assert HeartbeatPing.objects.filter(kind=Ping.FAIL).count() == 1
