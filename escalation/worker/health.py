"""Health checks, versions and settings of the installation."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import DatabaseError, connection
from django_q.conf import Conf
from django_q.models import OrmQ

from escalation.agent.binary import locate_binary
from escalation.errors import CliMissing
from sessions_app.credentials import SECRETS, SHOWN
from sessions_app.models import WorkerHeartbeat
from sessions_app.models.installation import shared_age, shared_moment
from sessions_app.text import duration

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
    """Runs a check of a database whose tables may be missing."""
    try:
        return check()
    except DatabaseError as error:
        return Check(name, False, str(error))


def worker_was_seen() -> bool:
    return WorkerHeartbeat.lately_seen().exists()


def _database() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return Check("database", False, str(error))
    return Check("database", True, "answers")


def _worker() -> Check:
    beat = WorkerHeartbeat.objects.order_by("-seen_at").annotate(age=shared_age("seen_at")).first()
    if beat is None:
        return Check("worker", False, "no worker has ever run: start one with `claudeops up`")
    return Check(
        "worker",
        beat.age < WorkerHeartbeat.SILENCE,
        f"last seen {duration(beat.age.total_seconds() * 1000)} ago",
    )


def _queue() -> Check:
    """Checks waiting tasks: the lock of a taken task is in the future. A task for a host that is
    away has its own incident."""
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


def versions() -> dict[str, str]:
    """Returns the versions that a bug report needs."""
    return {
        "Claude Ops": settings.CLAUDEOPS_VERSION,
        "Python": platform.python_version(),
        "Django": django.get_version(),
        "Database": database_version(),
        "Kernel": f"{platform.system()} {platform.release()}",
    }


def database_version() -> str:
    if connection.vendor != "postgresql":
        return f"SQLite {sqlite3.sqlite_version}"
    number = connection.pg_version  # type: ignore[attr-defined]
    return f"PostgreSQL {number // 10_000}.{number % 10_000}"


SECRET_NAME = re.compile(r"PASSWORD|SECRET|TOKEN|KEY|PRIVATE|WEBHOOK|PING_URL|CREDENTIAL")
HIDDEN = "(set, not shown)"


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: Any
    source: str

    @property
    def is_secret(self) -> bool:
        named = self.name in SECRETS or SECRET_NAME.search(self.name)
        return bool(named) and bool(self.value)

    @property
    def shown(self) -> str:
        if self.is_secret:
            return HIDDEN
        return as_text(self.value)

    def as_data(self) -> dict[str, str | None]:
        return {"name": self.name, "value": self.shown or None, "source": self.source}


def all_settings() -> Iterator[Setting]:
    for variable in settings.CLAUDEOPS_VARIABLES:
        yield Setting(variable.name, variable.value, variable.source)
    for name in SHOWN:
        yield Setting(name, os.environ.get(name, ""), _source_of(name))


def _source_of(name: str) -> str:
    if not os.environ.get(name):
        return "default"
    in_file = name in settings.NAMES_IN_ENV_FILE
    return str(settings.CLAUDEOPS_ENV_FILE) if in_file else "environment"


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    if value is None:
        return ""
    return without_password(str(value)) if not isinstance(value, Path) else str(value)


def without_password(text: str) -> str:
    """Hides the password in an address."""
    try:
        password = urlsplit(text).password if "://" in text else None
    except ValueError:
        return HIDDEN
    return text.replace(f":{password}@", ":***@") if password else text


# Shown at the start of a worker, on the Overview and by `check --deploy`; not by every command,
# since a container may have no other user.
RUNS_AS_ROOT = "Claude Ops runs as root: what its sandboxes allow runs with all permissions."
INSTEAD_OF_ROOT = (
    "Give it its own user (systemd: User=claudeops) with the groups and sudo rules that "
    "Tier 3 needs, and let that user own the state directory."
)


def runs_as_root() -> bool:
    return os.geteuid() == 0
