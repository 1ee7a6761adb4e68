"""The queue worker: recovers sessions at its start, writes heartbeats, and stops sessions cleanly.

A stopping django-q2 waits for running tasks, which may take an hour. So the worker first asks the
sessions of this host to stop; each is recorded as interrupted and can be continued.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from queue import Empty
from types import FrameType
from typing import Any

from django.db import connection, connections
from django_q import cluster
from django_q.conf import Conf
from django_q.worker import worker

from escalation.alerts.judge import judge_waiting
from escalation.probes.loop import ProbeThread
from escalation.queue import installation_lock, own_labels
from escalation.queue.broker import WakingBroker
from escalation.run.recovery import recover, recover_orphans, sweep
from escalation.sandbox.setup import sandbox_of_installation
from escalation.worker.health import INSTEAD_OF_ROOT, RUNS_AS_ROOT, runs_as_root
from escalation.worker.notifier import TIMEOUT_AT_THE_END, Notifier
from escalation.worker.schedules import ensure_housekeeping
from escalation.worker.telegram import LOOK_SECONDS, TelegramThread
from sessions_app.archive.encryption_key import check_keys
from sessions_app.models import Session, WorkerHeartbeat
from sessions_app.models.installation import shared_now

# The semaphores in the queues and values of `multiprocessing` stay locked when a process is killed:
# no other process would get a task again, and the sentinel would wait forever. The replacements
# below use the kernel: a message is one packet, and a file lock ends with its process.

FORK = multiprocessing.get_context("fork")
IDLE = -1.0
LONGEST_MESSAGE = 100_000
"""Less than the kernel accepts for one packet."""
LONGEST_RESULT = 20_000


class ProcessLock:
    """Lock between forked processes. The kernel releases it when its holder dies."""

    def __init__(self) -> None:
        self._file = os.memfd_create("lock")
        weakref.finalize(self, os.close, self._file)

    def __enter__(self) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_error: object) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)

    def is_held(self) -> bool:
        """Returns True if another process holds the lock now."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        return False


class Timer:
    """The part of `multiprocessing.Value` that django-q2 uses for the time left to a task."""

    def __init__(self) -> None:
        self._shared = FORK.RawValue("f", IDLE)
        self._lock = ProcessLock()

    @property
    def value(self) -> float:
        return float(self._shared.value)

    @value.setter
    def value(self, seconds: float) -> None:
        self._shared.value = seconds

    def get_lock(self) -> ProcessLock:
        return self._lock


class PacketQueue:
    """The part of `multiprocessing.Queue` that django-q2 uses, over a pair of sockets."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reading = ProcessLock()
        for end in (self._receiver, self._sender):
            weakref.finalize(self, end.close)

    def put(self, message: Any) -> None:
        """Sends a message, and waits while the socket is full. A long task result is cut."""
        packet = pickle.dumps(message)
        if len(packet) > LONGEST_MESSAGE and isinstance(message, dict) and "result" in message:
            packet = pickle.dumps({**message, "result": str(message["result"])[:LONGEST_RESULT]})
        self._sender.send(packet)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Receives a message. One reader waits inside the lock, the others for the lock."""
        with self._reading:
            if not select.select([self._receiver], [], [], timeout if block else 0)[0]:
                raise Empty
            packet = self._receiver.recv(2 * LONGEST_MESSAGE)
        return pickle.loads(packet)  # noqa: S301 (from a process of our own)

    def empty(self) -> bool:
        return not select.select([self._receiver], [], [], 0)[0]

    def qsize(self) -> int:
        """Returns 1 or 0: django-q2 only displays it."""
        return int(not self.empty())

    def has_idle_reader(self) -> bool:
        """Returns True if a process waits for a message and there is none."""
        return self.empty() and self._reading.is_held()

    def close(self) -> None:
        """Do nothing: other processes still read what the kernel holds."""

    def join_thread(self) -> None:
        """Do nothing: there is no thread."""


class WorkerSentinel(cluster.Sentinel):  # type: ignore[misc]  # django-q2 has no types
    def spawn_cluster(self) -> None:
        self.task_queue, self.result_queue = PacketQueue(), PacketQueue()
        WakingBroker.has_idle_worker = staticmethod(self.task_queue.has_idle_reader)
        super().spawn_cluster()

    def spawn_worker(self) -> None:
        self.spawn_process(worker, self.task_queue, self.result_queue, Timer(), self.timeout)


def new_cluster() -> Any:
    # django-q2 has no other way to choose the class of its sentinel.
    cluster.Sentinel = WorkerSentinel
    return cluster.Cluster()


logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0
ASK_SECONDS = 0.5
SENTINEL_CHECK_SECONDS = 5.0
JUDGE_SECONDS = 2.0
PRELOADED = ("escalation.tasks", "claude_agent_sdk", "jsonschema")


def run_worker() -> None:
    """Runs until SIGTERM or SIGINT. Exits by itself only to be restarted."""
    if runs_as_root():
        logger.warning("%s %s", RUNS_AS_ROOT, INSTEAD_OF_ROOT)
    with _logged("Recovery at start-up failed; the schedule retries it"):
        recover(at_start=True)
    with _logged("Could not check the encryption key"):
        _check_encryption_key()
    with _logged("Could not create the schedules; the next start retries it"):
        ensure_housekeeping()
    _preload()
    stop, stopped = threading.Event(), threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    connection.close()  # forked processes must not share a connection
    # No Event: a process that is killed while it reads would keep its lock.
    closing = FORK.RawValue("b", False)
    WakingBroker.is_closing = staticmethod(lambda: bool(closing.value))
    cluster = new_cluster()
    cluster.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    threading.Thread(target=_write_heartbeats_until, args=(stop,), daemon=True).start()
    notifier = threading.Thread(target=Notifier().work_until, args=(stop,), daemon=True)
    notifier.start()
    probes = threading.Thread(target=ProbeThread().work_until, args=(stop,), daemon=True)
    probes.start()
    telegram = threading.Thread(target=TelegramThread().work_until, args=(stop,), daemon=True)
    telegram.start()
    threading.Thread(target=_judge_deliveries_until, args=(stop,), daemon=True).start()
    while not stop.wait(SENTINEL_CHECK_SECONDS):
        if not cluster.sentinel.is_alive():
            stop.set()
            sys.exit("The django-q2 sentinel has died; the worker exits to be restarted.")
    closing.value = True
    _ask_to_stop()
    # Repeated until the cluster has ended: a session may start at this moment.
    asking = threading.Thread(target=_ask_to_stop_until, args=(stopped,), daemon=True)
    asking.start()
    cluster.stop()
    stopped.set()
    asking.join(ASK_SECONDS * 4)
    notifier.join(TIMEOUT_AT_THE_END)
    probes.join(TIMEOUT_AT_THE_END)
    telegram.join(LOOK_SECONDS)
    connections.close_all()


def _check_encryption_key() -> None:
    """Logs an error if the key does not open everything. Sessions then continue by handoff."""
    opens, said = check_keys()
    if not opens:
        logger.error("The encryption key does not open all encrypted data: %s", said)


def _write_heartbeats_until(stop: threading.Event) -> None:
    while True:
        with _logged("Could not write the worker heartbeat"):
            WorkerHeartbeat.objects.update_or_create(
                host=socket.gethostname(),
                defaults={
                    "pid": os.getpid(),
                    "seen_at": shared_now(),
                    "labels": " ".join(sorted(own_labels())),
                    "workers": Conf.WORKERS,
                },
            )
        with _logged("Could not remove the leftovers of dead sessions on this host"):
            sweep()
        # Besides the schedule: that may depend on a host that has died.
        with _logged("Could not recover orphaned sessions"):
            recover_orphans()
        connection.close()
        if stop.wait(HEARTBEAT_SECONDS):
            return


def _judge_deliveries_until(stop: threading.Event) -> None:
    """Judges deliveries of alerts. Not a task of the queue: an alert must not wait for the session
    that runs in every worker process. What comes within two seconds is judged together."""
    while not stop.wait(JUDGE_SECONDS):
        with _logged("Could not judge deliveries of alerts; retrying"):
            judge_waiting()
        connection.close()


def _ask_to_stop_until(stopped: threading.Event) -> None:
    while not stopped.wait(ASK_SECONDS):
        _ask_to_stop()
    connection.close()


def _ask_to_stop() -> None:
    with _logged("Could not ask running sessions to stop"):
        request_stop()


def request_stop() -> None:
    """Asks every session on this host to stop."""
    here = Session.objects.filter(host=socket.gethostname())
    with installation_lock():
        here.ask_to_stop(Session.StopCause.WORKER, "the worker was told to stop")


def _preload() -> None:
    """Imports modules before the fork, so that all processes share their memory.

    Freezing keeps the garbage collectors from writing to, and so copying, the shared pages.
    """
    for name in PRELOADED:
        import_module(name)
    with _logged("Could not detect the available sandboxes; the first session retries it"):
        sandbox_of_installation({})
    gc.collect()
    gc.freeze()


@contextmanager
def _logged(message: str) -> Iterator[None]:
    """Logs an exception and continues: the database may be back later."""
    try:
        yield
    except Exception:
        logger.exception(message)
