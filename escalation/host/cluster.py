"""django-q2's cluster, mended where the death of one of its processes would stop all the others.

A worker with nothing to do waits inside its queue's lock. Killed there, it takes the lock with it,
and no other worker would ever get a task again. Here the queue knows who holds the lock, so that it
can be freed when the guard finds that process dead.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from typing import Any

from django_q import cluster
from django_q.conf import Conf

from escalation.queue.broker import WakingBroker

FORK = multiprocessing.get_context("fork")
NOBODY = 0


class FreeableQueue(Queue):  # type: ignore[type-arg]
    def __init__(self, maxsize: int = 0) -> None:
        super().__init__(maxsize, ctx=FORK)
        self._holder = FORK.Value("q", NOBODY, lock=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """As the original waits without a time limit, which is how django-q2's processes wait."""
        if not block or timeout is not None:
            return super().get(block, timeout)
        with self._rlock:  # type: ignore[attr-defined]
            self._holder.value = os.getpid()
            received = self._recv_bytes()  # type: ignore[attr-defined]
            self._holder.value = NOBODY
        self._sem.release()  # type: ignore[attr-defined]
        return multiprocessing.reduction.ForkingPickler.loads(received)

    def has_idle_reader(self) -> bool:
        """Somebody waits inside, and nothing is there for them yet."""
        on_its_way = self._buffer or not self.empty()  # type: ignore[attr-defined]
        return bool(self._holder.value != NOBODY and not on_its_way)

    def free_from(self, process: BaseProcess) -> None:
        """Take the lock from a dead process, if it had it."""
        if process.pid is not None and self._holder.value == process.pid:
            self._holder.value = NOBODY
            self._rlock.release()  # type: ignore[attr-defined]


class Guard(cluster.Sentinel):  # type: ignore[misc]  # django-q2 has no types
    def spawn_cluster(self) -> None:
        self.task_queue = FreeableQueue(maxsize=Conf.QUEUE_LIMIT or 0)
        self.result_queue = FreeableQueue()
        WakingBroker.has_idle_worker = staticmethod(self.task_queue.has_idle_reader)
        super().spawn_cluster()

    def reincarnate(self, process: BaseProcess) -> None:
        if not process.is_alive():
            for queue in (self.task_queue, self.result_queue):
                queue.free_from(process)
        super().reincarnate(process)


def new_cluster() -> Any:
    # django-q2 names the class of its guard nowhere but in its own module.
    cluster.Sentinel = Guard
    return cluster.Cluster()
