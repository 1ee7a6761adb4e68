"""The queue worker with manners: it recovers before it begins, shows that it lives, and ends its
runs cleanly when it is told to stop.

django-q2 waits for running tasks when it is stopped, which may be an hour. So the parent first asks
the runs of this host to stop; each is recorded as interrupted and can be continued.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from types import FrameType

from django.db import connection, connections
from django_q.conf import Conf

from escalation.host.cluster import new_cluster
from escalation.host.postman import PATIENCE_AT_THE_END, Postman
from escalation.host.schedules import ensure_housekeeping
from escalation.host.superuser import INSTEAD_OF_ROOT, RUNS_AS_ROOT, runs_as_root
from escalation.queue import enqueue
from escalation.queue.broker import WakingBroker
from escalation.queue.hosts import own_labels
from escalation.recovery.left_here import sweep
from escalation.recovery.recover import recover, recover_orphans
from escalation.run.walls import walls_of_installation
from sessions_app.archive.sealed_things import what_the_key_opens
from sessions_app.models import Session, WorkerBeat
from sessions_app.models.clock import shared_now

logger = logging.getLogger(__name__)

BEAT_SECONDS = 15.0
ASK_SECONDS = 0.5
GUARD_LOOK_SECONDS = 5.0
LOADED_ONCE = ("escalation.tasks", "claude_agent_sdk", "jsonschema")


def run_worker() -> None:
    """Blocks until SIGTERM or SIGINT; ends by itself only to be started again."""
    if runs_as_root():
        logger.warning("%s %s", RUNS_AS_ROOT, INSTEAD_OF_ROOT)
    with _logged("Recovery at the start failed; the schedule tries it again"):
        recover(enqueue=enqueue, at_start=True)
    with _logged("Whether the key opens what is kept could not be found out"):
        _complain_about_the_key()
    with _logged("The schedules could not be made; the next start tries it again"):
        ensure_housekeeping()
    _load_before_the_fork()
    stop, stopped = threading.Event(), threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    connection.close()  # no connection may be shared with the processes that are forked now
    WakingBroker.closing = closing = get_context("fork").Event()
    cluster = new_cluster()
    cluster.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    threading.Thread(target=_beat_until, args=(stop,), daemon=True).start()
    postman = threading.Thread(target=Postman().work_until, args=(stop,), daemon=True)
    postman.start()
    while not stop.wait(GUARD_LOOK_SECONDS):
        if not cluster.sentinel.is_alive():
            stop.set()
            sys.exit("The guard of the queue has died: this worker ends, to be started again.")
    closing.set()
    _ask_to_stop()
    # Again and again until the cluster has ended: a tier may begin in this very moment.
    asking = threading.Thread(target=_ask_to_stop_until, args=(stopped,), daemon=True)
    asking.start()
    cluster.stop()
    stopped.set()
    asking.join(ASK_SECONDS * 4)
    postman.join(PATIENCE_AT_THE_END)
    connections.close_all()


def _complain_about_the_key() -> None:
    """It runs all the same: what another key has sealed is left alone, and handed on by handoff."""
    opens, said = what_the_key_opens()
    if not opens:
        logger.error("The encryption key is not the one that sealed all: %s", said)


def _beat_until(stop: threading.Event) -> None:
    while True:
        with _logged("A sign of life could not be stored"):
            WorkerBeat.objects.update_or_create(
                host=socket.gethostname(),
                defaults={
                    "pid": os.getpid(),
                    "seen_at": shared_now(),
                    "labels": " ".join(sorted(own_labels())),
                    "workers": Conf.WORKERS,
                },
            )
        with _logged("What dead runs left here could not be cleared away"):
            sweep()
        # Not by the schedule alone: that goes by the clock of one host, which may be the dead one.
        with _logged("Runs that nobody looks after could not be taken over"):
            recover_orphans(enqueue=enqueue)
        connection.close()
        if stop.wait(BEAT_SECONDS):
            return


def _ask_to_stop_until(stopped: threading.Event) -> None:
    while not stopped.wait(ASK_SECONDS):
        _ask_to_stop()
    connection.close()


def _ask_to_stop() -> None:
    with _logged("Running tiers could not be asked to stop"):
        request_stop()


def request_stop() -> None:
    """Ask every run on this host to stop."""
    Session.objects.filter(host=socket.gethostname()).ask_to_stop(
        Session.StopCause.WORKER, "the worker was told to stop"
    )


def _load_before_the_fork() -> None:
    """What a forked process shares with its parent is in memory once.

    Freezing keeps the garbage collector of each process from touching, and so copying, all of it.
    """
    for name in LOADED_ONCE:
        import_module(name)
    with _logged("Which walls can be built here could not be found out; the first run tries it"):
        walls_of_installation({})
    gc.collect()
    gc.freeze()


@contextmanager
def _logged(trouble: str) -> Iterator[None]:
    """The worker outlives a database that is away for a while."""
    try:
        yield
    except Exception:
        logger.exception(trouble)
