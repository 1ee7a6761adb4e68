"""Bring sessions whose runner is gone to a true end, by hand."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from escalation.management.progress import waiting
from escalation.management.terminal import TerminalCommand
from escalation.queue import enqueue
from escalation.recovery.recover import recover
from sessions_app.reading.plain_text import json_text


class Command(TerminalCommand):
    help = (
        "Find sessions whose runner is gone: stop what survives, read in what is on disk, settle "
        "the cost, and continue or ask a person. "
        "The worker does this at its start and every minute."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument("--json", action="store_true", help="what was done, as JSON")

    def handle(self, *args: Any, **options: Any) -> str:
        with waiting(self.stderr, "Looking for sessions whose runner is gone"):
            done = recover(enqueue=enqueue, dry_run=options["dry_run"])
        if options["json"]:
            return json_text([asdict(entry) for entry in done], indent=2)
        for entry in done:
            self.stdout.write(f"Session {entry.session} (Tier {entry.tier}): {entry.what}")
        return f"{len(done)} sessions needed recovery."
