"""The web server's lookout: notices that no worker lives, and then brings word in its place."""

from __future__ import annotations

import logging
import threading

from django.db import connection

from escalation.host.health import worker_was_seen
from escalation.host.postman import Postman
from escalation.word.silence import tell_of_silent_workers

logger = logging.getLogger(__name__)

LOOK_SECONDS = 60.0


def look_until(stop: threading.Event) -> None:
    postman = Postman()
    look(postman)
    while not stop.wait(LOOK_SECONDS):
        look(postman)


def look(postman: Postman) -> None:
    try:
        tell_of_silent_workers()
        if not worker_was_seen():
            postman.look()
    except Exception:
        logger.exception("Whether a worker lives could not be found out; it is tried again")
    finally:
        connection.close()
