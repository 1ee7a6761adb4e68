"""Bring sessions whose runner is gone to a true end, by hand."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from escalation.queue import enqueue
from escalation.recovery.recover import recover


class Command(BaseCommand):
    help = (
        "Find sessions whose runner is gone: stop what survives, read in what is on disk, settle "
        "the cost, and continue or ask a person. "
        "The worker does this at its start and every minute."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")

    def handle(self, *args: Any, **options: Any) -> str:
        done = recover(enqueue=enqueue, dry_run=options["dry_run"])
        for entry in done:
            self.stdout.write(f"Session {entry.session} (Tier {entry.tier}): {entry.what}")
        return f"{len(done)} sessions needed recovery."
