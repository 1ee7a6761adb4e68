"""The queue worker with manners: it recovers before it begins, shows that it lives, and ends its
runs cleanly when it is told to stop.

django-q2 waits for running tasks when it is stopped, which may be an hour. So the parent first asks
the runs of this host to stop; each is recorded as interrupted and can be gone on with.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from types import FrameType

from django.db import connection, connections
from django.utils import timezone
from django_q.cluster import Cluster

from escalation.cli.verdict import WORKER_STOP
from escalation.queue import enqueue
from escalation.recovery import recover
from escalation.services import request_stop
from sessions_app.models import WorkerBeat

BEAT_SECONDS = 15.0


def run_worker() -> None:
    """Blocks until SIGTERM or SIGINT."""
    recover(enqueue=enqueue, at_start=True)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    beating = threading.Thread(target=_beat_until, args=(stop,), daemon=True)
    connection.close()  # no connection may be shared with the processes that are forked now
    cluster = Cluster()
    cluster.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    beating.start()
    stop.wait()
    request_stop(WORKER_STOP)
    cluster.stop()
    connections.close_all()


def _beat_until(stop: threading.Event) -> None:
    while True:
        WorkerBeat.objects.update_or_create(
            host=socket.gethostname(), defaults={"pid": os.getpid(), "seen_at": timezone.now()}
        )
        connection.close()
        if stop.wait(BEAT_SECONDS):
            return
