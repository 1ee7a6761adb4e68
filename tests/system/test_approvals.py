"""A command that waits for approval in a whole installation: everything that ends the waiting."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.system.conftest import Installation, processes_mentioning, wait_until

DRILL = "asks-before-acting"


@pytest.fixture
def waiting(migrated: Installation) -> Installation:
    """The drill, up to the moment in which its command waits."""
    made = migrated.manage(
        "shell",
        "-c",
        "from django.contrib.auth.models import Group, User; "
        "User.objects.create(username='grace').groups.add(Group.objects.get(name='approver'))",
    )
    assert made.returncode == 0, made.stderr
    migrated.start("worker")
    migrated.manage("drill", DRILL, "--queue")
    wait_until(lambda: state_of_approval(migrated) == "waiting", "the command waits")
    return migrated


def state_of_approval(installation: Installation) -> str:
    states = installation.rows("SELECT state FROM sessions_app_approval")
    return states[0][0] if states else ""


def container(installation: Installation) -> str:
    [path] = installation.state.glob("drills/cycle-*/system/containers/web.state")
    return Path(path).read_text()


def test_a_command_approved_from_a_terminal_runs_and_fixes_the_cycle(waiting: Installation):
    said = waiting.manage("approval", "approve", "1", "--as", "grace", "--note", "Go on.")

    assert said.returncode == 0, said.stderr
    outcome = wait_until(
        lambda: waiting.rows("SELECT outcome FROM sessions_app_cycle WHERE outcome != ''"),
        "the cycle ends",
    )
    assert outcome == [("fixed",)]
    assert container(waiting).startswith("Up")


def test_an_approval_takes_effect_after_the_worker_that_waited_was_killed(waiting: Installation):
    os.killpg(waiting.processes[0].pid, signal.SIGKILL)
    waiting.processes[0].wait()
    mark = waiting.rows("SELECT run_mark FROM sessions WHERE status = 'running'")[0][0]

    waiting.manage("recover")
    left = (state_of_approval(waiting), container(waiting)[:6], processes_mentioning(mark))
    late = waiting.manage("approval", "approve", "1", "--as", "grace")
    waiting.start("worker")

    assert left == ("waiting", "Exited", [])
    assert late.returncode == 0, late.stderr
    outcome = wait_until(
        lambda: waiting.rows("SELECT outcome FROM sessions_app_cycle WHERE outcome != ''"),
        "the cycle ends",
    )
    assert outcome == [("fixed",)]
    assert container(waiting).startswith("Up")
    used = waiting.rows("SELECT used_at IS NOT NULL FROM sessions_app_approval")
    assert used == [(1,)]


def test_a_stop_of_the_worker_leaves_the_question_to_the_next_session(waiting: Installation):
    waiting.processes[0].send_signal(signal.SIGTERM)

    waiting.processes[0].wait(30)

    assert state_of_approval(waiting) == "waiting"
    assert container(waiting).startswith("Exited")


def test_a_pause_that_stops_sessions_ends_the_waiting(waiting: Installation):
    waiting.manage("pause", "fire", "--stop-running")

    wait_until(lambda: state_of_approval(waiting) == "withdrawn", "the question is withdrawn")
    assert container(waiting).startswith("Exited")
