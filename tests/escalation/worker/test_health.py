"""Health checks: each reports what it found; anonymous visitors only learn yes or no."""

from __future__ import annotations

import shutil
from collections import namedtuple
from datetime import timedelta

import pytest
from django.db import OperationalError, connection
from django.utils import timezone
from django_q.models import OrmQ

from escalation.worker.health import (
    LEAST_DISK_BYTES,
    LONGEST_QUEUE_AGE,
    Check,
    readiness,
    worker_was_seen,
)
from sessions_app.models import WorkerHeartbeat

pytestmark = pytest.mark.django_db

Usage = namedtuple("Usage", "total used free")
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def state_directory(settings) -> None:
    settings.CLAUDEOPS_STATE_DIR.mkdir()


@pytest.fixture
def well(fake_cli) -> None:
    """An installation in which nothing is wrong."""
    seen(SECOND)


def seen(ago: timedelta, host: str = "here") -> None:
    WorkerHeartbeat.objects.create(host=host, pid=1, seen_at=timezone.now() - ago)


def waits(ago: timedelta) -> None:
    OrmQ.objects.create(key="claudeops", payload="x", lock=timezone.now() - ago)


def check(name: str) -> Check:
    return next(check for check in readiness() if check.name == name)


def break_database(monkeypatch) -> None:
    def refuse() -> None:
        raise OperationalError("unable to open database file")

    monkeypatch.setattr(connection, "cursor", refuse)


def test_all_checks_pass_on_a_healthy_installation(well):
    checks = readiness()

    assert [check.name for check in checks] == ["database", "worker", "queue", "cli", "disk"]
    assert all(check.ok for check in checks)
    assert all(check.said for check in checks)


def test_without_a_worker_the_check_says_how_to_start_one(fake_cli):
    assert not check("worker").ok
    assert "claudeops up" in check("worker").said


@pytest.mark.parametrize(
    ("ago", "ok"),
    [(SECOND, True), (WorkerHeartbeat.SILENCE - SECOND, True), (WorkerHeartbeat.SILENCE, False)],
)
def test_a_worker_is_alive_while_its_heartbeat_is_recent(fake_cli, ago, ok):
    seen(ago)

    assert (check("worker").ok, worker_was_seen()) == (ok, ok)


def test_one_live_worker_is_enough(fake_cli):
    seen(timedelta(hours=1), "old")
    seen(SECOND, "new")

    assert check("worker").ok


@pytest.mark.parametrize(
    ("ago", "ok"), [(SECOND, True), (LONGEST_QUEUE_AGE - SECOND, True), (LONGEST_QUEUE_AGE, False)]
)
def test_a_task_that_waits_too_long_fails_the_check(well, ago, ok):
    waits(ago)

    assert check("queue").ok is ok


def test_the_oldest_task_decides(well):
    waits(SECOND)
    waits(2 * LONGEST_QUEUE_AGE)

    assert not check("queue").ok


def test_a_task_held_by_a_worker_does_not_count(well):
    waits(-timedelta(hours=1))

    assert check("queue").said == "nothing waits"


def test_a_missing_cli_is_reported(well, settings, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path / "nowhere")

    assert not check("cli").ok
    assert "nowhere" in check("cli").said


@pytest.mark.parametrize(("free", "ok"), [(LEAST_DISK_BYTES + 1, True), (LEAST_DISK_BYTES, False)])
def test_a_full_disk_is_reported(well, monkeypatch, free, ok):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, free))

    assert check("disk").ok is ok


def test_a_missing_state_directory_is_reported(well, settings, tmp_path):
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "gone"

    assert not check("disk").ok


def test_a_broken_database_is_reported_with_the_other_checks(well, monkeypatch):
    break_database(monkeypatch)

    checks = readiness()

    assert [check.name for check in checks] == ["database", "cli", "disk"]
    assert (checks[0].ok, checks[0].said) == (False, "unable to open database file")


def test_a_database_without_tables_is_reported(well, monkeypatch):
    def refuse(*order: str) -> None:
        raise OperationalError("no such table: sessions_app_workerheartbeat")

    monkeypatch.setattr(WorkerHeartbeat.objects, "order_by", refuse)

    assert not all(check.ok for check in readiness())


def test_liveness_is_visible_without_login(client):
    response = client.get("/healthz")

    assert (response.status_code, response.content) == (200, b"ok\n")


def test_liveness_needs_no_database(client, monkeypatch):
    break_database(monkeypatch)

    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_only_get_and_head_are_allowed(client, path):
    assert client.post(path).status_code == 405
    assert client.head(path).status_code in (200, 503)


def test_a_healthy_installation_is_ready(client, well):
    response = client.get("/readyz")

    assert (response.status_code, response.json()["ready"]) == (200, True)


def test_one_failing_check_makes_it_not_ready(client, fake_cli):
    response = client.get("/readyz")

    assert (response.status_code, response.json()["ready"]) == (503, False)
    assert response.json()["checks"]["worker"] == {"ok": False}
    assert response.json()["checks"]["database"] == {"ok": True}


def test_a_broken_database_makes_it_not_ready(client, well, monkeypatch):
    break_database(monkeypatch)

    assert client.get("/readyz").status_code == 503


def test_an_anonymous_visitor_sees_no_paths(client, well, fake_cli):
    body = client.get("/readyz").content.decode()

    assert str(fake_cli.path) not in body
    assert "said" not in body


def test_an_operator_sees_the_details(operator_client, well, fake_cli):
    checks = operator_client.get("/readyz").json()["checks"]

    assert str(fake_cli.path) in checks["cli"]["said"]
    assert "MB free" in checks["disk"]["said"]
