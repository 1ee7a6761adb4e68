"""A queue whose lock can be taken back from a process that was killed inside it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

import pytest

from escalation.host.cluster import FORK, FreeableQueue


def pass_on(source: FreeableQueue, target: FreeableQueue) -> None:
    while True:
        target.put((os.getpid(), source.get()))


@pytest.fixture
def queues() -> tuple[FreeableQueue, FreeableQueue]:
    return FreeableQueue(), FreeableQueue()


@pytest.fixture
def waiting_worker(queues) -> Iterator[BaseProcess]:
    """A worker that has nothing to do: it waits inside the queue's lock."""
    process = FORK.Process(target=pass_on, args=queues, daemon=True)
    process.start()
    give_up = time.monotonic() + 10
    while queues[0]._holder.value != process.pid and time.monotonic() < give_up:
        time.sleep(0.01)
    yield process
    process.kill()
    process.join()


def killed(process: BaseProcess) -> BaseProcess:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process


def test_what_is_put_in_comes_out(queues, waiting_worker):
    tasks, results = queues

    tasks.put("a task")

    assert results.get(timeout=10) == (waiting_worker.pid, "a task")


def test_the_lock_of_a_killed_worker_is_freed_for_the_next_one(queues, waiting_worker):
    tasks, results = queues
    tasks.free_from(killed(waiting_worker))
    heir = FORK.Process(target=pass_on, args=queues, daemon=True)
    heir.start()

    tasks.put("a task")

    try:
        assert results.get(timeout=10) == (heir.pid, "a task")
    finally:
        heir.kill()
        heir.join()


def test_a_lock_that_somebody_else_holds_is_left_alone(queues, waiting_worker):
    tasks, results = queues
    stranger = FORK.Process(target=time.sleep, args=(60,), daemon=True)
    stranger.start()

    tasks.free_from(killed(stranger))
    tasks.put("a task")

    assert results.get(timeout=10) == (waiting_worker.pid, "a task")
