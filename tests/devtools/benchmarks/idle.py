"""Measures an idle installation: processor, pick-up of a task, memory."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django_q.tasks import async_task, fetch

from escalation.worker.parent import (
    Child,
    start_web_server,
    start_worker,
    stop_children,
    wait_for_web,
)
from sessions_app.models import WorkerHeartbeat
from tests.devtools.benchmarks.usage import busy_seconds, memory_of, with_descendants

HOST = "127.0.0.1"
TASKS = 30
SETTLE_SECONDS = 5.0
TIMEOUT_SECONDS = 60.0
MOMENT = "tests.devtools.benchmarks.idle.moment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Idle:
    seconds: float
    cpu_percent: float
    pickup_ms: list[float]
    pss_mb: float | None
    """None without permission to read it."""
    rss_mb: float

    @property
    def median_ms(self) -> float:
        return statistics.median(self.pickup_ms)

    @property
    def p95_ms(self) -> float:
        return statistics.quantiles(self.pickup_ms, n=20)[-1]


def measure(seconds: float) -> Idle:
    """Measure idle processes first, then the pick-up of tasks."""
    with installation() as children:
        time.sleep(SETTLE_SECONDS)
        processes = with_descendants([child.process.pid for child in children])
        memory = memory_of(processes)
        before = busy_seconds(processes)
        time.sleep(seconds)
        busy = busy_seconds(processes) - before
        pickups = [time_pickup() for _ in range(TASKS)]
    return Idle(
        seconds=seconds,
        cpu_percent=busy / seconds * 100,
        pickup_ms=pickups,
        pss_mb=memory.pss_mb,
        rss_mb=memory.rss_mb,
    )


@contextmanager
def installation() -> Iterator[list[Child]]:
    port = free_port()
    children = [start_web_server(HOST, port), start_worker()]
    try:
        if not wait_for_web(children, HOST, port):
            raise TimeoutError("the web server did not start: its messages are above")
        _wait_for_worker()
        # Both have answered once.
        time_pickup()
        yield children
    finally:
        stop_children(children)


def _wait_for_worker() -> None:
    give_up = time.monotonic() + TIMEOUT_SECONDS
    while not WorkerHeartbeat.objects.exists():
        if time.monotonic() > give_up:
            raise TimeoutError("the worker did not start: its messages are above")
        time.sleep(0.1)


def moment() -> float:
    """The task: returns its start time by the monotonic clock, which all processes share."""
    return time.monotonic()


def time_pickup() -> float:
    """Return the milliseconds from queueing a task to its start in an idle worker."""
    time.sleep(0.2)
    asked = time.monotonic()
    task = async_task(MOMENT)
    done = fetch(task, wait=int(TIMEOUT_SECONDS * 1000))
    if done is None or not done.success:
        raise TimeoutError(f"the worker did not run a task: {done and done.result}")
    return (float(done.result) - asked) * 1000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
