"""Queues and locks between the processes of a worker when any of them is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from queue import Empty

import pytest

from escalation.worker.worker import FORK, PacketQueue, ProcessLock, Timer

ENTERED = "entered"


@pytest.fixture
def queues() -> tuple[PacketQueue, PacketQueue]:
    return PacketQueue(), PacketQueue()


@pytest.fixture
def begin() -> Iterator[Callable[..., BaseProcess]]:
    begun: list[BaseProcess] = []

    def start(target: Callable[..., None], *arguments: object) -> BaseProcess:
        begun.append(FORK.Process(target=target, args=arguments, daemon=True))
        begun[-1].start()
        return begun[-1]

    yield start
    for process in begun:
        killed(process)


def pass_on(source: PacketQueue, target: PacketQueue) -> None:
    while True:
        target.put((os.getpid(), source.get()))


def stay_inside(lock: ProcessLock, told: PacketQueue) -> None:
    with lock:
        told.put(ENTERED)
        time.sleep(60)


def killed(process: BaseProcess) -> None:
    process.kill()
    process.join()


def is_soon(condition: Callable[[], bool]) -> bool:
    give_up = time.monotonic() + 10
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.01)
    return condition()


def test_a_queue_returns_what_was_put_in(queues, begin):
    tasks, results = queues
    worker = begin(pass_on, tasks, results)

    tasks.put({"func": "a task"})

    assert results.get(timeout=10) == (worker.pid, {"func": "a task"})


def test_an_empty_queue_times_out(queues):
    with pytest.raises(Empty):
        queues[0].get(timeout=0.01)


def test_a_worker_that_is_killed_while_it_waits_blocks_no_other(queues, begin):
    tasks, results = queues
    first = begin(pass_on, tasks, results)
    assert is_soon(tasks.has_idle_reader)
    heir = begin(pass_on, tasks, results)

    killed(first)
    tasks.put("a task")

    assert results.get(timeout=10) == (heir.pid, "a task")


def test_a_worker_that_is_killed_at_any_step_blocks_no_other(queues, begin):
    """The kill comes at another moment each time, also between the lock and the wait."""
    tasks, results = queues
    for number in range(40):
        doomed = begin(pass_on, tasks, results)
        time.sleep(number / 4_000)
        killed(doomed)
    heir = begin(pass_on, tasks, results)

    tasks.put("a task")

    assert results.get(timeout=10) == (heir.pid, "a task")


def test_a_reader_sleeps_until_something_arrives(queues, begin):
    tasks, results = queues
    assert not tasks.has_idle_reader()
    worker = begin(pass_on, tasks, results)
    assert is_soon(tasks.has_idle_reader)

    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    tasks.put("a task")

    assert not tasks.has_idle_reader()


@pytest.mark.parametrize("lock", [ProcessLock(), Timer().get_lock()])
def test_the_lock_of_a_killed_process_is_released(queues, begin, lock):
    holder = begin(stay_inside, lock, queues[0])
    assert queues[0].get(timeout=10) == ENTERED
    assert lock.is_held()

    killed(holder)

    assert not lock.is_held()


def test_a_timer_is_shared_between_processes(begin):
    timer = Timer()

    def set_timer() -> None:
        timer.value = 3.0

    begin(set_timer).join()

    assert timer.value == 3.0


def test_a_result_that_is_too_long_for_a_packet_is_shortened(queues):
    queues[0].put({"id": "1", "result": "x" * 1_000_000, "success": False})

    found = queues[0].get(timeout=10)

    assert (found["id"], found["success"]) == ("1", False)
    assert 1_000 < len(found["result"]) < 100_000
