"""Hosts whose clocks differ by a minute share one queue and see each other's heartbeats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[3]
SCRIPT = """
import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
import django, time_machine
django.setup()
from django_q.models import OrmQ
from escalation.worker.health import readiness
from escalation.queue import enqueue_session, waiting_sessions
from escalation.queue.broker import WakingBroker
from sessions_app.models import Cycle, Session, WorkerHeartbeat
from sessions_app.models.installation import shared_now

@contextmanager
def host(seconds_ahead):
    with time_machine.travel(datetime.now(UTC) + timedelta(seconds=seconds_ahead), tick=True):
        yield

cycle = Cycle.objects.create(trigger="manual", workdir="/", drill="any")
session = Session.objects.create(cycle=cycle, tier=1, model="haiku", workdir="/")
with host(60):
    enqueue_session(session)
with host(-60):
    waits = waiting_sessions(include_taken=True) == {session.pk}
    taken = len(WakingBroker("claudeops").dequeue())
with host(60):
    is_held = waiting_sessions(include_taken=True) == {session.pk}
with host(-60):
    WorkerHeartbeat.objects.create(host="slow", pid=1, seen_at=shared_now() - timedelta(seconds=70))
with host(60):
    seen = [beat.host for beat in WorkerHeartbeat.lately_seen()]
    said = {check.name: check.ok for check in readiness()}
print(json.dumps({
    "waits for a slow host": waits, "taken by it at once": taken, "held, not lost": is_held,
    "seen by a fast host": seen, "worker": said["worker"],
}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, new_postgres_database) -> dict[str, Any]:
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=PROJECT,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "CLAUDEOPS_STATE_DIR": str(tmp_path_factory.mktemp("state")),
            "DJANGO_SETTINGS_MODULE": "claudeops.settings",
            "DATABASE_URL": new_postgres_database(),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    heard: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return heard


def test_a_task_of_a_host_with_a_fast_clock_is_visible_at_once(found):
    assert found["waits for a slow host"]
    assert found["taken by it at once"] == 1


def test_a_task_taken_by_a_host_with_a_slow_clock_is_not_lost(found):
    assert found["held, not lost"]


def test_a_worker_is_live_for_a_host_with_a_fast_clock(found):
    assert found["seen by a fast host"] == ["slow"]
    assert found["worker"]
