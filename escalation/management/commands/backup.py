"""Writes a backup."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from escalation.errors import RefusalCode
from escalation.management.output import Refused, TerminalCommand, waiting
from escalation.worker.backup import make_backup

MEGABYTE = 1_000_000


class Command(TerminalCommand):
    help = (
        "Write database, keys, archive and settings to one private file. "
        "Sessions may run meanwhile. The file holds secrets: keep it like a key."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="a new file, such as claudeops-monday.backup")

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(options["file"]).expanduser().absolute()
        if path.exists() or path.is_symlink():
            raise Refused(
                RefusalCode.FILE,
                f"{path} is there already. Choose another name, or remove it first.",
            )
        if not path.parent.is_dir():
            raise Refused(RefusalCode.FILE, f"There is no directory {path.parent}. Make it first.")
        try:
            with waiting(self.stderr, "Making a backup") as line:
                made = make_backup(path, line.tell)
        except OSError as error:
            raise Refused(
                RefusalCode.FILE,
                f"The backup could not be written to {path.parent}: {error.strerror}. "
                "The draft was removed. Choose another disk, or free some space.",
            ) from error
        self.stdout.write(
            f"{made.path}: {made.rows} rows and {made.files} files, {made.size / MEGABYTE:.1f} MB. "
            "It holds secrets."
        )
