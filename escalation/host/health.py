"""Is Claude Ops itself well? Each check has a name, an answer and a sentence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError, connection
from django_q.conf import Conf
from django_q.models import OrmQ

from escalation.agent import locate_binary
from escalation.errors import CliMissing
from sessions_app.models import WorkerBeat
from sessions_app.models.clock import shared_age, shared_moment
from sessions_app.reading.formatting import duration

LONGEST_QUEUE_AGE = timedelta(minutes=10)
LEAST_DISK_BYTES = 200 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    said: str


def readiness() -> list[Check]:
    database = _database()
    if not database.ok:
        return [database, _cli(), _disk()]
    return [database, _asked("worker", _worker), _asked("queue", _queue), _cli(), _disk()]


def _asked(name: str, check: Callable[[], Check]) -> Check:
    """A database that answers may still lack its tables."""
    try:
        return check()
    except DatabaseError as error:
        return Check(name, False, str(error))


def worker_was_seen() -> bool:
    return WorkerBeat.lately_seen().exists()


def _database() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return Check("database", False, str(error))
    return Check("database", True, "answers")


def _worker() -> Check:
    beat = WorkerBeat.objects.order_by("-seen_at").annotate(age=shared_age("seen_at")).first()
    if beat is None:
        return Check("worker", False, "no worker has ever been seen: start one with `claudeops up`")
    return Check(
        "worker",
        beat.age < WorkerBeat.SILENCE,
        f"last seen {duration(beat.age.total_seconds() * 1000)} ago",
    )


def _queue() -> Check:
    """Waiting tasks only: a taken one is locked into the future. What is bound to a host that is
    away says so by an incident of its own."""
    waiting = OrmQ.objects.filter(key=Conf.CLUSTER_NAME, lock__lte=shared_moment())
    oldest = waiting.annotate(age=shared_age("lock")).order_by("lock").first()
    if oldest is None:
        return Check("queue", True, "nothing waits")
    return Check(
        "queue",
        oldest.age < LONGEST_QUEUE_AGE,
        f"the oldest task has waited for {duration(oldest.age.total_seconds() * 1000)}",
    )


def _cli() -> Check:
    try:
        path, source = locate_binary()
    except CliMissing as error:
        return Check("cli", False, str(error))
    return Check("cli", True, f"{source}: {path}")


def _disk() -> Check:
    try:
        free = shutil.disk_usage(settings.CLAUDEOPS_STATE_DIR).free
    except OSError as error:
        return Check("disk", False, str(error))
    return Check("disk", free > LEAST_DISK_BYTES, f"{free // 1024 // 1024} MB free")
