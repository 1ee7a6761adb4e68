"""What bringing the database to this version would do, and what stands in its way."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from escalation.recovery.runners import runner_lives
from sessions_app.models import Session, WorkerBeat

OF_A_RUNNER = (
    *("host", "boot_id", "runner_pid", "runner_started"),
    *("heartbeat_at", "started_at", "created_at"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Upgrade:
    waiting: tuple[str, ...]
    """Migrations that would be applied."""
    unknown: tuple[str, ...]
    """Migrations that a newer version has applied."""
    is_new: bool
    running: tuple[int, ...]
    workers: tuple[str, ...]

    @property
    def objection(self) -> str:
        """Why it must not be done now, with what to do; nothing where it may, or need not be."""
        if self.unknown:
            return (
                f"The database was set up by a newer Claude Ops (it has {self.unknown[0]}). "
                "Install that version again, or restore a backup of this one."
            )
        if not self.waiting:
            return ""
        if self.running:
            numbers = ", ".join(f"#{number}" for number in self.running)
            return (
                f"Sessions are running ({numbers}) and would meet tables that they do not know. "
                "Wait for them, or stop them: `claudeops pause --stop-running`."
            )
        if self.workers:
            return (
                f"A worker of another version is running ({', '.join(self.workers)}). "
                "Stop it first, then start it again with this version."
            )
        return ""


def upgrade_ahead() -> Upgrade:
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


def carry_out() -> None:
    call_command("migrate", verbosity=0)


def running_sessions() -> tuple[int, ...]:
    """Those whose runner lives: what a crash left behind waits for the next worker's recovery.

    Of an older database only columns that it has.
    """
    running = Session.objects.filter(status=Session.Status.RUNNING).only(*OF_A_RUNNER)
    return tuple(session.pk for session in running.order_by("pk") if runner_lives(session))


def living_workers() -> tuple[str, ...]:
    """Seen lately; on this host also only if the process is still there.

    Of an older database only columns that it has.
    """
    here = socket.gethostname()
    return tuple(
        f"process {beat.pid} on {beat.host}"
        for beat in WorkerBeat.lately_seen().only("host", "pid")
        if beat.host != here or _is_alive(beat.pid)
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
