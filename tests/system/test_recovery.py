"""After any process was killed, every session has a true status and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.system.conftest import Installation, processes_mentioning, wait_until

SLOW = """
title = "Slow"
[[tier.1]]
say = "I look at the lamp."
run = "{command}"
[[tier.1]]
delay = {delay}
[tier.1.report]
summary = "The lamp is green."
services = [{{ name = "lamp", status = "{status}" }}]
events = []
actions_taken = []
escalation = {{ needed = {escalates}, reason = "mend it", services = [] }}
[[tier.2]]
run = "sleep {nap}"
"""


@pytest.fixture
def slow(migrated: Installation, tmp_path: Path) -> Installation:
    scenarios = tmp_path / "scenarios"
    scenarios.mkdir()
    looks = {"status": "healthy", "escalates": "false", "nap": migrated.nap}
    mends = {"status": "down", "escalates": "true", "nap": migrated.nap}
    texts = {
        "thinking": SLOW.format(command="echo the lamp is green", delay=4, **looks),
        "tool": SLOW.format(command=f"sleep {migrated.nap}", delay=0, **looks),
        "mending": SLOW.format(command="true", delay=0, **mends),
    }
    for name, text in texts.items():
        (scenarios / f"{name}.toml").write_text(text)
    migrated.environment["CLAUDEOPS_SCENARIOS_DIR"] = str(scenarios)
    return migrated


def kill_whole_worker(worker: subprocess.Popen[str]) -> None:
    """All processes of the cluster at once, as when the machine's memory ran out."""
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def running_session(installation: Installation, tier: int) -> list[tuple[int]]:
    return installation.rows(
        "SELECT id FROM sessions WHERE status = 'running' AND tier = ? AND cli_pid > 0", tier
    )


def tool_has_answered(installation: Installation) -> list[tuple[int]]:
    return installation.rows("SELECT id FROM sessions_app_sessionevent WHERE kind = 'user'")


def tool_was_called(installation: Installation, tier: int) -> list[tuple[int]]:
    return installation.rows(
        "SELECT 1 FROM sessions_app_sessionevent e JOIN sessions s ON s.id = e.session_id"
        " WHERE s.tier = ? AND e.kind = 'assistant' AND e.payload LIKE '%tool_use%'",
        tier,
    )


def test_after_a_killed_worker_the_chain_continues(slow: Installation):
    worker = slow.start("worker")
    slow.manage("drill", "thinking", "--queue")
    wait_until(lambda: tool_has_answered(slow), "the tool answers")

    kill_whole_worker(worker)
    slow.start("worker")
    wait_until(
        lambda: slow.rows("SELECT 1 FROM sessions_app_cycle WHERE outcome = 'healthy'"),
        "the recovered chain ends",
    )

    first, second = slow.chain(1)
    assert (first["status"], second["status"]) == ("interrupted", "completed")
    assert (second["purpose"], second["continued_by"]) == ("recovery", "resume")
    assert second["parent_session_id"] == first["id"]


def test_no_sandbox_outlives_its_worker(slow: Installation):
    worker = slow.start("worker")
    slow.manage("drill", "tool", "--queue")
    wait_until(slow.napping_tools, "the tool runs")
    mark = slow.rows("SELECT run_mark FROM sessions")[0][0]
    assert processes_mentioning(mark) != []

    kill_whole_worker(worker)

    wait_until(lambda: processes_mentioning(mark) == [], "the kernel ends the sandboxes")
    assert slow.napping_tools() == []


def test_surviving_cli_and_tool_of_a_killed_worker_are_stopped(slow: Installation):
    slow.environment["CLAUDEOPS_SANDBOX"] = "off"
    worker = slow.start("worker")
    slow.manage("drill", "tool", "--queue")
    wait_until(slow.napping_tools, "the tool runs")
    kill_whole_worker(worker)
    mark = slow.rows("SELECT run_mark FROM sessions")[0][0]
    assert processes_mentioning(mark) != []

    slow.manage("recover")

    assert processes_mentioning(mark) == []
    assert slow.rows("SELECT status FROM sessions WHERE id = 1") == [("interrupted",)]


def test_an_interrupted_remediation_needs_a_person(slow: Installation):
    worker = slow.start("worker")
    slow.manage("drill", "mending", "--queue")
    wait_until(lambda: running_session(slow, 2), "Tier 2 runs")
    wait_until(slow.napping_tools, "its tool runs")
    wait_until(lambda: tool_was_called(slow, 2), "its call is recorded")
    kill_whole_worker(worker)

    said = slow.manage("recover").stdout

    assert "half done" in said
    assert slow.rows("SELECT outcome FROM sessions_app_cycle") == [("needs_person",)]
    assert len(slow.rows("SELECT id FROM sessions")) == 2


def test_recover_dry_run_reports_and_changes_nothing(slow: Installation):
    worker = slow.start("worker")
    slow.manage("drill", "tool", "--queue")
    wait_until(lambda: running_session(slow, 1), "Tier 1 runs")
    kill_whole_worker(worker)

    said = slow.manage("recover", "--dry-run").stdout

    assert "would be ended" in said
    assert slow.rows("SELECT status FROM sessions") == [("running",)]
    slow.manage("recover")


def test_a_stopped_worker_ends_its_session_as_interrupted(slow: Installation):
    worker = slow.start("worker")
    slow.manage("drill", "tool", "--queue")
    wait_until(lambda: running_session(slow, 1), "Tier 1 runs")

    worker.send_signal(signal.SIGTERM)
    worker.wait(40)

    [(status, error), (waiting, _nothing)] = slow.rows("SELECT status, error FROM sessions")
    assert (status, waiting) == ("interrupted", "queued")
    assert "told to stop" in error
    assert processes_mentioning(slow.rows("SELECT run_mark FROM sessions")[0][0]) == []
