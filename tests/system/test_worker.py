"""The real worker carries a drill through the queue."""

from __future__ import annotations

import sqlite3

from tests.system.conftest import Installation, wait_until


def finished_cycles(installation: Installation) -> list[tuple[int]]:
    return installation.rows("SELECT id FROM sessions_app_cycle WHERE state = 'finished'")


def test_worker_carries_a_three_tier_drill_to_its_end_through_the_queue(installation):
    installation.manage("migrate")
    installation.start("qcluster")

    queued = installation.manage("drill", "three-tiers", "--queue")
    wait_until(lambda: finished_cycles(installation), "the drill ends")

    assert "is queued" in queued.stdout
    chain = installation.chain(1)
    assert [link["status"] for link in chain] == ["escalated", "escalated", "completed"]
    assert [link["parent_session_id"] for link in chain] == [None, 1, 2]
    assert [link["continued_by"] for link in chain] == ["fresh", "resume", "resume"]


def test_session_delivered_twice_runs_once(installation):
    installation.manage("migrate")
    installation.manage("drill", "all-healthy", "--queue")
    [(key, payload, lock)] = installation.rows("SELECT key, payload, lock FROM django_q_ormq")
    with sqlite3.connect(installation.state / "claudeops.sqlite3") as connection:
        connection.execute(
            "INSERT INTO django_q_ormq (key, payload, lock) VALUES (?, ?, ?)", (key, payload, lock)
        )
    connection.close()

    installation.start("qcluster")
    wait_until(lambda: finished_cycles(installation), "the drill ends")
    wait_until(lambda: not installation.rows("SELECT 1 FROM django_q_ormq"), "the queue is empty")

    assert len(installation.rows("SELECT id FROM sessions")) == 1
    log = (installation.state / "drills/cycle-1/requests.jsonl").read_text().splitlines()
    assert len([line for line in log if '"body"' in line]) == 3
