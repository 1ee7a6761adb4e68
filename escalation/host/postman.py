"""The postman: brings word to people, beside everything else that this process does.

Not a task among the queue's: while every worker runs a tier, and perhaps waits for an approval in
it, the very message that asks for it must go out. Targets do not wait for each other, and one that
hangs costs a thread for half a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from django.db import connection
from django.utils import timezone

from escalation.approvals.links import link_for
from escalation.word import digests, outbox, sending, silence

logger = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
RARELY_SECONDS = 60.0
TARGETS_AT_ONCE = 8
PATIENCE_AT_THE_END = 10.0


class Postman:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(TARGETS_AT_ONCE, thread_name_prefix="word")
        self._busy: dict[int, Future[None]] = {}

    def work_until(self, stop: threading.Event) -> None:
        next_rare_look = time.monotonic() + RARELY_SECONDS
        while not stop.wait(LOOK_SECONDS):
            is_rare = time.monotonic() >= next_rare_look
            if is_rare:
                next_rare_look = time.monotonic() + RARELY_SECONDS
            self.look(rarely=is_rare)
        connection.close()
        self.finish(PATIENCE_AT_THE_END)

    def look(self, *, rarely: bool = False) -> None:
        """One round. It outlives a database that is away for a while."""
        try:
            if rarely:
                silence.tell_of_silent_workers()
                digests.write_due()
            outbox.pass_on()
            for target in sending.targets_with_due(timezone.now()):
                self._send_to(target)
        except Exception:
            logger.exception("Word to people could not be looked after; it is tried again")
            connection.close()

    def finish(self, patience: float) -> None:
        """Wait for what is on its way, so that nothing of it is sent twice."""
        end = time.monotonic() + patience
        for sent in self._busy.values():
            if not sent.done():
                _wait(sent, max(0.0, end - time.monotonic()))
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _send_to(self, target: int) -> None:
        under_way = self._busy.get(target)
        if under_way is None or under_way.done():
            self._busy[target] = self._threads.submit(self._send, target)

    def _send(self, target: int) -> None:
        try:
            sending.send_due(target, link_for)
        except Exception:
            logger.exception("Target %s could not be served; it is tried again", target)
        finally:
            connection.close()


def _wait(sent: Future[None], seconds: float) -> None:
    try:
        sent.result(timeout=seconds)
    except TimeoutError:
        logger.warning("A message was still on its way when the worker ended: it is sent again")
