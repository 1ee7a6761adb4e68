"""Database, keys, archive and settings in one file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from escalation.host.backup.make import make_backup
from escalation.management.progress import waiting
from escalation.management.refusal import Refused
from escalation.management.terminal import TerminalCommand

MEGABYTE = 1_000_000


class Command(TerminalCommand):
    help = (
        "Write database, keys, archive and settings into one file, for its owner alone. "
        "Runs may go on meanwhile: it shows one moment. It holds secrets: keep it as you keep keys."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="a new file, such as claudeops-monday.backup")

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(options["file"]).expanduser().absolute()
        if path.exists() or path.is_symlink():
            raise Refused(f"{path} is there already. Choose another name, or remove it first.")
        if not path.parent.is_dir():
            raise Refused(f"There is no directory {path.parent}. Make it first.")
        try:
            with waiting(self.stderr, "Making a backup") as line:
                made = make_backup(path, line.tell)
        except OSError as error:
            raise Refused(
                f"The backup could not be written to {path.parent}: {error.strerror}. "
                "Nothing is left of it. Choose another disk, or make room."
            ) from error
        self.stdout.write(
            f"{made.path}: {made.rows} rows and {made.files} files, {made.size / MEGABYTE:.1f} MB. "
            "It holds secrets."
        )
