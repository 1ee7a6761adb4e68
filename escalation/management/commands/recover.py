"""Recovers sessions whose worker died."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from escalation.management.output import TerminalCommand, waiting
from escalation.run.recovery import recover
from sessions_app.text import json_text


class Command(TerminalCommand):
    help = (
        "Find sessions whose worker died: stop what still runs, read what is on disk, settle "
        "the cost, and continue or ask a person. "
        "The worker does this at its start and every minute."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only report what would be done")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")

    def handle(self, *args: Any, **options: Any) -> str:
        with waiting(self.stderr, "Looking for sessions whose runner is gone"):
            done = recover(dry_run=options["dry_run"])
        if options["json"]:
            return json_text([asdict(entry) for entry in done], indent=2)
        for entry in done:
            self.stdout.write(f"Session {entry.session} (Tier {entry.tier}): {entry.what}")
        return f"{len(done)} sessions needed recovery."
