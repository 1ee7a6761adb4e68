"""The error of a failed task is stored redacted in the queue's table."""

from __future__ import annotations

import traceback

import pytest

from escalation import tasks
from escalation.queue.broker import TaskFailed, with_redacted_failure
from tests.tables import each_row

TOKEN = "ghp_" + "a1B2" * 9


def test_the_stored_error_of_a_task_is_redacted_and_has_a_traceback():
    @with_redacted_failure
    def task() -> str:
        raise ValueError(f"with {TOKEN}")

    with pytest.raises(TaskFailed) as failed:
        task()

    stored = "".join(traceback.format_exception(failed.value))
    assert TOKEN not in stored
    assert "ValueError: with [redacted: github token]" in stored


def test_a_successful_task_returns_its_result():
    assert with_redacted_failure(lambda: "done")() == "done"


@each_row(
    "task",
    [
        tasks.run_session,
        tasks.recover_orphans,
        tasks.clean_up,
        tasks.prove_sandbox,
        tasks.start_scheduled_cycle,
    ],
)
def test_every_task_is_wrapped(task):
    assert task.__wrapped__
