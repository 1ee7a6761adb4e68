"""Restores a backup."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import OperationalError, ProgrammingError

from escalation.errors import RefusalCode
from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.output import Refused, TerminalCommand, waiting
from escalation.worker.backup import BackupUnusable, checked_backup, restore
from escalation.worker.installation import holder_of, living_workers, running_sessions
from sessions_app.models import Cycle, Watch


class Command(TerminalCommand):
    help = (
        "Restore a backup into this installation: its database, keys and archive. The "
        "file is read whole first; one that is cut off, foreign or newer changes nothing. Also "
        "brings a backup of SQLite to PostgreSQL and back, and one of an older version to this."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file")
        parser.add_argument("--replace", action="store_true", help="replace a record that exists")
        parser.add_argument("--no-input", action="store_true", help="do not ask before replacing")

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(options["file"]).expanduser().absolute()
        _require_rest()
        try:
            with waiting(self.stderr, f"Reading {path.name} through"):
                heading = checked_backup(path)
        except BackupUnusable as unusable:
            raise Refused(RefusalCode.FILE, unusable) from unusable
        except OSError as error:
            raise Refused(RefusalCode.FILE, f"{path} cannot be read: {error.strerror}.") from error
        self._agree(options)
        try:
            with waiting(self.stderr, "Restoring") as line:
                said = restore(path, heading, line.tell)
        except OSError as error:
            raise Refused(
                RefusalCode.FILE,
                f"The backup could not be brought back: {error.strerror} ({error.filename}). "
                "The record is as it was.",
            ) from error
        made = f"{heading.made_at[:16].replace('T', ' ')} on {heading.host}"
        self.stdout.write(f"Restored what was saved at {made}, by version {heading.version}.")
        for sentence in said:
            self.stdout.write(sentence)
        self.stdout.write("Sessions that were running then are taken up when a worker starts.")

    def _agree(self, options: dict[str, Any]) -> None:
        record = _record_here()
        if not record:
            return
        if not options["replace"]:
            raise Refused(
                RefusalCode.RECORD_EXISTS,
                f"There is a record here already ({record}), and restoring would replace it. "
                "Make a backup of it, then give --replace. Nothing was changed.",
            )
        if not options["no_input"]:
            confirm_or_stop(self, f"Replace the record that is here ({record})? [y/N] ")


def _require_rest() -> None:
    """Refuse while a process uses the database that would be replaced."""
    if holder := holder_of(Path(settings.CLAUDEOPS_STATE_DIR)):
        raise Refused(RefusalCode.IN_USE, f"{holder.sentence} Nothing was changed.")
    try:
        workers, sessions = living_workers(), running_sessions()
    except (OperationalError, ProgrammingError):
        return  # nothing there yet, or nothing that can be read
    if workers:
        raise Refused(
            RefusalCode.IN_USE, f"A worker is running ({', '.join(workers)}). Stop it first."
        )
    if sessions:
        raise Refused(
            RefusalCode.IN_USE,
            f"Sessions are running ({', '.join(map(str, sessions))}). Stop them first.",
        )


def _record_here() -> str:
    try:
        watches, cycles = Watch.objects.count(), Cycle.objects.count()
    except (OperationalError, ProgrammingError):
        return ""
    return f"{watches} watches, {cycles} cycles" if watches or cycles else ""
