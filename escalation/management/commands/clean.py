"""Expire, archive and prune by hand; a schedule does the same every hour."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.host.cleaning import clean
from escalation.management.progress import waiting
from escalation.management.terminal import TerminalCommand


class Command(TerminalCommand):
    help = "Expire old conversations, archive transcripts, prune old events and leftover files."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")

    def handle(self, *args: Any, **options: Any) -> str:
        with waiting(self.stderr, "Cleaning"):
            cleaned = clean(dry_run=options["dry_run"])
        return f"{'Would be done' if options['dry_run'] else 'Done'}. {cleaned}"
