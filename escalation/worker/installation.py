"""State of the installation: upgrade of the database, lock of `up`, first operator account."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from escalation.errors import RefusalCode
from escalation.run.recovery import runner_lives
from sessions_app.models import Session, WorkerHeartbeat
from sessions_app.models.installation import shared_now

RUNNER_FIELDS = (
    *("host", "boot_id", "runner_pid", "runner_started"),
    *("heartbeat_at", "started_at", "created_at"),
)

UTF8 = "UTF8"

HEARTBEAT_TABLES = ("sessions_app_workerheartbeat", "sessions_app_workerbeat")
"""The table of heartbeats today, and as version 0.2 called it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Upgrade:
    waiting: tuple[str, ...]
    """Migrations to apply."""
    unknown: tuple[str, ...]
    """Migrations of a newer version."""
    is_new: bool
    running: tuple[int, ...]
    workers: tuple[str, ...]
    encoding: str = UTF8
    """Encoding of the database."""

    @property
    def objection(self) -> str:
        """Returns why the upgrade must not run now, with what to do; empty if it may."""
        if self.encoding != UTF8:
            return (
                f"The database is in the encoding {self.encoding}, and must be in {UTF8}. Create "
                "another one with `createdb --encoding UTF8 --template template0 --owner USER "
                "NAME`, set DATABASE_URL to it, and copy the data with pg_dump if there are any."
            )
        if self.unknown:
            return (
                f"The database was set up by a newer Claude Ops (it has {self.unknown[0]}). "
                "Install that version again, or restore a backup of this version."
            )
        if not self.waiting:
            return ""
        if self.running:
            numbers = ", ".join(f"#{number}" for number in self.running)
            return (
                f"Sessions are running ({numbers}), and the upgrade changes their tables. "
                "Wait for them, or stop them: `claudeops pause --stop-running`."
            )
        if self.workers:
            return (
                f"A worker of another version is running ({', '.join(self.workers)}). "
                "Stop it first, then start it again with this version."
            )
        return ""

    @property
    def refusal_code(self) -> RefusalCode:
        """Returns the code that belongs to the objection."""
        if self.encoding != UTF8:
            return RefusalCode.DATABASE_ENCODING
        return RefusalCode.NEWER_DATABASE if self.unknown else RefusalCode.IN_USE


def upgrade_ahead() -> Upgrade:
    if (encoding := database_encoding()) != UTF8:
        # Nothing else can be read: text comes back as bytes, or not at all.
        return Upgrade(
            waiting=(), unknown=(), is_new=False, running=(), workers=(), encoding=encoding
        )
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    applied = MigrationRecorder(connection).applied_migrations()
    known = executor.loader.disk_migrations
    is_new = not applied
    return Upgrade(
        waiting=tuple(f"{migration.app_label}.{migration.name}" for migration, _back in plan),
        unknown=tuple(f"{app}.{name}" for app, name in sorted(applied) if (app, name) not in known),
        is_new=is_new,
        running=() if is_new else running_sessions(),
        workers=() if is_new else living_workers(),
    )


def database_encoding() -> str:
    """Returns the encoding of the database, by the name that PostgreSQL gives it."""
    if connection.vendor != "postgresql":
        return UTF8
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_encoding")
        (encoding,) = cursor.fetchone()
    return encoding.decode() if isinstance(encoding, bytes) else str(encoding)


def carry_out() -> None:
    call_command("migrate", verbosity=0)


def running_sessions() -> tuple[int, ...]:
    """Returns the running sessions whose process lives. The worker recovers the others.

    Reads only columns that older databases have.
    """
    if Session._meta.db_table not in connection.introspection.table_names():
        return ()
    running = Session.objects.filter(status=Session.Status.RUNNING).only(*RUNNER_FIELDS)
    return tuple(session.pk for session in running.order_by("pk") if runner_lives(session))


def living_workers() -> tuple[str, ...]:
    """Returns the workers with a recent heartbeat, on this host only those whose process lives.

    Reads only columns that older databases have, from the table by the name that it has there.
    """
    found = connection.introspection.table_names()
    tables = [table for table in HEARTBEAT_TABLES if table in found]
    if not tables:
        return ()
    since = connection.ops.adapt_datetimefield_value(shared_now() - WorkerHeartbeat.SILENCE)
    with connection.cursor() as cursor:
        query = f"SELECT host, pid FROM {tables[0]} WHERE seen_at >= %s"  # noqa: S608
        cursor.execute(query, [since])
        workers = cursor.fetchall()
    here = socket.gethostname()
    return tuple(
        f"process {pid} on {host}" for host, pid in workers if host != here or _is_alive(pid)
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


NAME = "up.lock"
"""Locked with flock by the one `up` of a state directory; the kernel releases a dead process."""


@dataclass(frozen=True, slots=True)
class Holder:
    pid: int
    address: str
    since: str

    @property
    def sentence(self) -> str:
        return (
            f"Claude Ops already uses this state directory: at {self.address}, process "
            f"{self.pid}, since {self.since}. Stop that one first (Ctrl-C there, or kill "
            f"{self.pid}), or set CLAUDEOPS_STATE_DIR for a second installation."
        )


class Taken(Exception):
    """Another `up` runs with this state directory."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(holder.sentence)


def take(state: Path, address: str) -> int:
    """Takes the lock. Its file descriptor stays open across `exec`."""
    descriptor = os.open(state / NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Taken(_read(state)) from None
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(Holder(os.getpid(), address, since))).encode(), 0)
    os.set_inheritable(descriptor, True)
    return descriptor


def holder_of(state: Path) -> Holder | None:
    """Returns the process that holds the lock, if any."""
    try:
        descriptor = os.open(state / NAME, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(state)
    finally:
        os.close(descriptor)
    return None


def _read(state: Path) -> Holder:
    """Reads the holder, which is written just after the lock is taken."""
    try:
        return Holder(**json.loads((state / NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return Holder(0, "an address not yet known", "just now")


def ensure_operator() -> str:
    """Creates the first account if there is none. Returns the line to show at the start.

    A password from the environment is applied at every start, so that a forgotten one can be
    replaced. A generated password is shown once and stored only as a hash.
    """
    name, chosen = settings.CLAUDEOPS_ADMIN_USER, settings.CLAUDEOPS_ADMIN_PASSWORD
    user = User.objects.filter(username=name).first()
    if user is None and not chosen and User.objects.filter(is_superuser=True).exists():
        return ""
    if user is None:
        password = chosen or secrets.token_urlsafe(12)
        User.objects.create_superuser(username=name, password=password)
        shown = "from CLAUDEOPS_ADMIN_PASSWORD" if chosen else f"{password} (shown only this once)"
        return f"{name}, password {shown}"
    if chosen and not user.check_password(chosen):
        user.set_password(chosen)
        user.save(update_fields=["password"])
        return f"{name}, password reset from CLAUDEOPS_ADMIN_PASSWORD"
    return name
