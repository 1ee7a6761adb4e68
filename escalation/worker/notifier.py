"""The notifier: sends notifications and pings in threads of the worker.

Sending is not a task of the queue: while every worker process runs a session that waits for an
approval, the message that asks for the approval must still go out. Channels do not wait for each
other; one that hangs occupies one thread until its timeout.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from django.db import connection, transaction
from django.db.models import F, Q
from django.utils import timezone

from escalation.notifications import digest, outbox, sending
from escalation.notifications.outbox import notify
from escalation.supervisor.approvals import buttons_for, link_for
from escalation.supervisor.conclude import due_pings, send_ping
from escalation.worker import traces
from sessions_app.models import Incident, Notification, WorkerHeartbeat
from sessions_app.models.installation import shared_now
from sessions_app.text import ago

TITLE = "The worker on {host} is silent"
TEXT = (
    "Its last heartbeat was {ago}. {rest} Read its log, and start it again with `make up` or "
    "`claudeops worker`. If it was stopped on purpose, nothing needs to be done."
)
NOBODY_LEFT = "No other worker is running: queued sessions will not start."
OTHERS_LEFT = "Workers on other hosts are running."


def tell_of_silent_workers() -> int:
    """Notifies once for each worker without heartbeats. Returns the number of notifications.

    Another worker or the web server calls it. That all hosts are down is noticed only by an outside
    monitor (`CLAUDEOPS_PING_URL`).
    """
    now = shared_now()
    silent = WorkerHeartbeat.objects.filter(seen_at__lt=now - WorkerHeartbeat.SILENCE).filter(
        Q(silence_told_at=None) | Q(silence_told_at__lt=F("seen_at"))
    )
    return sum(_tell_of(beat) for beat in silent)


@transaction.atomic
def _tell_of(beat: WorkerHeartbeat) -> bool:
    now = shared_now()
    untold = WorkerHeartbeat.objects.filter(
        pk=beat.pk, seen_at=beat.seen_at, silence_told_at=beat.silence_told_at
    )
    if not untold.update(silence_told_at=now):
        return False
    rest = OTHERS_LEFT if WorkerHeartbeat.lately_seen().exists() else NOBODY_LEFT
    notify(
        Notification.Kind.WORKER_SILENT,
        TITLE.format(host=beat.host),
        severity=Incident.Severity.CRITICAL,
        text=TEXT.format(ago=ago(beat.seen_at, now), rest=rest),
    )
    return True


logger = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
RARELY_SECONDS = 60.0
CHANNELS_AT_ONCE = 8
PINGS, TRACES = 0, -1
"""Keys beside the numbers of channels, which begin at 1."""
OTHERS = {PINGS: "Pings", TRACES: "Traces"}
TIMEOUT_AT_THE_END = 10.0


class Notifier:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(CHANNELS_AT_ONCE, thread_name_prefix="notifier")
        self._busy: dict[int, Future[None]] = {}

    def work_until(self, stop: threading.Event) -> None:
        next_rare_look = time.monotonic() + RARELY_SECONDS
        while not stop.wait(LOOK_SECONDS):
            is_rare = time.monotonic() >= next_rare_look
            if is_rare:
                next_rare_look = time.monotonic() + RARELY_SECONDS
            self.look(rarely=is_rare)
        connection.close()
        self.finish(TIMEOUT_AT_THE_END)

    def look(self, *, rarely: bool = False) -> None:
        """Starts sending what is due. An error of the database is logged, and retried later."""
        try:
            if rarely:
                tell_of_silent_workers()
                digest.write_due()
            outbox.pass_on()
            for channel in sending.channels_with_due(timezone.now()):
                self._begin(channel, partial(sending.send_due, channel, link_for, buttons_for))
            if cycles := due_pings():
                self._begin(PINGS, partial(_send_pings, cycles))
            if traces.is_due():
                self._begin(TRACES, traces.export_due)
        except Exception:
            logger.exception("Could not process notifications; retrying")
            connection.close()

    def finish(self, timeout: float) -> None:
        """Waits for messages that are being sent, so that none is sent twice."""
        end = time.monotonic() + timeout
        for sent in self._busy.values():
            if not sent.done():
                _wait(sent, max(0.0, end - time.monotonic()))
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, key: int, job: Callable[[], object]) -> None:
        """Runs a job in a thread, unless the job before it with the same key still runs."""
        under_way = self._busy.get(key)
        if under_way is None or under_way.done():
            self._busy[key] = self._threads.submit(self._run, key, job)

    def _run(self, key: int, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception:
            name = OTHERS.get(key, f"Channel {key}")
            logger.exception("%s: sending failed; retrying", name)
        finally:
            connection.close()


def _send_pings(cycles: list[int]) -> None:
    for number in cycles:
        send_ping(number)


def _wait(sent: Future[None], seconds: float) -> None:
    try:
        sent.result(timeout=seconds)
    except TimeoutError:
        logger.warning("The worker ended while a message was being sent; it is sent again")
