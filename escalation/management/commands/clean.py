"""Expires, archives and prunes now, as the hourly schedule does."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.management.output import TerminalCommand, waiting
from escalation.worker.housekeeping import clean


class Command(TerminalCommand):
    help = "Expire old conversations, archive transcripts, prune old events and leftover files."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only report what would be done")

    def handle(self, *args: Any, **options: Any) -> str:
        with waiting(self.stderr, "Cleaning"):
            cleaned = clean(dry_run=options["dry_run"])
        return f"{'Would be done' if options['dry_run'] else 'Done'}. {cleaned}"
