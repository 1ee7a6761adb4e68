"""Watchdog in the web server: reports silent workers, and sends notifications in their place."""

from __future__ import annotations

import logging
import threading

from django.db import connection

from escalation.worker.health import worker_was_seen
from escalation.worker.notifier import Notifier, tell_of_silent_workers

logger = logging.getLogger(__name__)

LOOK_SECONDS = 60.0


def look_until(stop: threading.Event) -> None:
    notifier = Notifier()
    look(notifier)
    while not stop.wait(LOOK_SECONDS):
        look(notifier)


def look(notifier: Notifier) -> None:
    try:
        tell_of_silent_workers()
        if not worker_was_seen():
            notifier.look()
    except Exception:
        logger.exception("Could not check the workers; retrying")
    finally:
        connection.close()
