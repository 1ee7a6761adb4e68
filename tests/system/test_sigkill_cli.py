"""The CLI is killed: its session ends with a clear error, and its tools end with it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import Installation, processes_mentioning, wait_until

SCENARIO = """
title = "Slow"
[[tier.1]]
say = "I look at the lamp."
run = "{first}"
[tier.1.report]
summary = "The lamp is dark."
services = [{{ name = "lamp", status = "down" }}]
events = []
actions_taken = []
escalation = {{ needed = true, reason = "mend it", services = [] }}
[[tier.2]]
say = "I mend the lamp."
run = "{second}"
"""


@pytest.fixture
def slow(migrated: Installation, tmp_path: Path) -> Installation:
    scenarios = tmp_path / "scenarios"
    scenarios.mkdir()
    nap = migrated.nap
    texts = {
        "looking": SCENARIO.format(first=f"sleep {nap}", second="true"),
        "unmarked": SCENARIO.format(first=f"env -i /bin/sleep {nap}", second="true"),
        "mending": SCENARIO.format(first="true", second=f"sleep {nap}"),
    }
    for name, text in texts.items():
        (scenarios / f"{name}.toml").write_text(text)
    migrated.environment["CLAUDEOPS_SCENARIOS_DIR"] = str(scenarios)
    return migrated


def kill_cli_while_its_tool_runs(installation: Installation, scenario: str, tier: int) -> str:
    """Gives the mark of the run whose CLI was killed. What follows it waits in a pause."""
    installation.start("worker")
    installation.manage("drill", scenario, "--queue")
    wait_until(installation.napping_tools, "the tool runs")
    installation.manage("pause", "the test looks first")
    [(pid, mark)] = installation.rows(
        "SELECT cli_pid, run_mark FROM sessions WHERE status = 'running' AND tier = ?", tier
    )
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ended(installation, tier), "the run ends")
    return mark


def ended(installation: Installation, tier: int) -> list[tuple[Any, ...]]:
    return installation.rows(
        "SELECT status, error FROM sessions WHERE tier = ? AND finished_at IS NOT NULL", tier
    )


def test_a_killed_cli_ends_its_session_with_the_signal_and_the_chain_continues(slow: Installation):
    kill_cli_while_its_tool_runs(slow, "looking", tier=1)

    [(status, error)] = ended(slow, 1)
    assert status == "interrupted"
    assert "signal 9" in error
    successor = "SELECT status, parent_session_id FROM sessions WHERE purpose = 'recovery'"
    assert slow.rows(successor) == [("queued", 1)]


def test_no_tool_of_a_killed_cli_survives(slow: Installation):
    mark = kill_cli_while_its_tool_runs(slow, "looking", tier=1)

    assert slow.napping_tools() == []
    assert processes_mentioning(mark) == []


def test_a_tool_without_the_mark_of_its_run_does_not_survive(slow: Installation):
    kill_cli_while_its_tool_runs(slow, "unmarked", tier=1)

    assert slow.napping_tools() == []


def test_an_interrupted_remediation_needs_a_person(slow: Installation):
    kill_cli_while_its_tool_runs(slow, "mending", tier=2)

    [(outcome, reason)] = wait_until(
        lambda: slow.rows(
            "SELECT outcome, outcome_reason FROM sessions_app_cycle WHERE state = 'finished'"
        ),
        "the cycle ends",
    )
    assert outcome == "needs_person"
    assert "half done" in reason
    assert len(slow.rows("SELECT id FROM sessions")) == 2
    assert slow.napping_tools() == []
