"""The real worker runs a drill through the queue."""

from __future__ import annotations

import sqlite3
from itertools import pairwise

from tests.system.conftest import Installation, wait_until


def finished_cycles(installation: Installation) -> list[tuple[int]]:
    return installation.rows("SELECT id FROM sessions_app_cycle WHERE state = 'finished'")


def test_the_worker_runs_a_three_tier_drill_through_the_queue(migrated):
    migrated.start("qcluster")

    queued = migrated.manage("drill", "three-tiers", "--queue")
    wait_until(lambda: finished_cycles(migrated), "the drill ends")

    assert "is queued" in queued.stdout
    chain = migrated.chain(1)
    assert [link["status"] for link in chain] == ["escalated", "escalated", "completed"]
    assert [link["parent_session_id"] for link in chain] == [None, 1, 2]
    assert [link["continued_by"] for link in chain] == ["fresh", "resume", "resume"]


def test_session_delivered_twice_runs_once(migrated):
    migrated.manage("drill", "all-healthy", "--queue")
    [(key, payload, lock)] = migrated.rows("SELECT key, payload, lock FROM django_q_ormq")
    with sqlite3.connect(migrated.database) as connection:
        connection.execute(
            "INSERT INTO django_q_ormq (key, payload, lock) VALUES (?, ?, ?)", (key, payload, lock)
        )
    connection.close()

    migrated.start("qcluster")
    wait_until(lambda: finished_cycles(migrated), "the drill ends")
    wait_until(lambda: not migrated.rows("SELECT 1 FROM django_q_ormq"), "the queue is empty")

    assert len(migrated.rows("SELECT id FROM sessions")) == 1
    log = (migrated.state / "drills/cycle-1/requests.jsonl").read_text().splitlines()
    assert len([line for line in log if '"body"' in line]) == 3


def test_sessions_without_a_slot_start_one_after_another_in_order(migrated):
    migrated.environment["CLAUDEOPS_MAX_SESSIONS"] = "1"
    for _ in range(3):
        migrated.manage("drill", "all-healthy", "--queue")

    migrated.start("worker")
    wait_until(lambda: len(finished_cycles(migrated)) == 3, "all drills end")

    runs = migrated.rows("SELECT id, started_at, finished_at FROM sessions ORDER BY started_at")
    # Two workers take the first two tasks at the same moment: either may get the place.
    _first, *waited = [number for number, _started, _finished in runs]
    assert waited == sorted(waited)
    assert all(before[2] <= after[1] for before, after in pairwise(runs))


def test_a_sleeping_worker_starts_a_session_at_once(migrated):
    worker = migrated.start("worker")
    wait_until(lambda: list(migrated.state.glob("wakeup/*.fifo")), "the worker sleeps")

    migrated.manage("drill", "all-healthy", "--queue")
    wait_until(
        lambda: migrated.rows("SELECT 1 FROM sessions WHERE started_at IS NOT NULL"),
        "the session starts",
    )

    [(waited,)] = migrated.rows(
        "SELECT (julianday(started_at) - julianday(created_at)) * 86400 FROM sessions"
    )
    assert waited < 2.5  # half of what polling alone would take, on a machine under load
    assert worker.poll() is None


def test_a_worker_schedules_recovery_and_housekeeping(migrated):
    migrated.start("worker")
    wait_until(lambda: migrated.rows("SELECT 1 FROM sessions_app_workerheartbeat"), "it lives")

    names = migrated.rows("SELECT name FROM django_q_schedule ORDER BY name")
    assert names == [
        ("cleaning",),
        ("manifests",),
        ("recovery",),
        ("sandbox-proof",),
        ("verification",),
    ]
