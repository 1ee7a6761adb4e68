"""Checks and rebuilds the stored sums and search texts."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from escalation.management.output import TerminalCommand, waiting
from escalation.queue import installation_lock
from sessions_app.costs.rollups import check, rebuild_sums
from sessions_app.models.search import rebuild_search_text


class Command(TerminalCommand):
    help = (
        "Compare the sums and search texts that the pages read with the sessions. Exit code 1: "
        "they differ."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        either = parser.add_mutually_exclusive_group()
        either.add_argument("--check", action="store_true", help="only compare (the default)")
        either.add_argument(
            "--rebuild",
            action="store_true",
            help="rebuild them, e.g. after a change of CLAUDEOPS_TIME_ZONE, and compare",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["rebuild"]:
            with waiting(self.stderr, "Adding up the runs"):
                # Two transactions: one that held both would take its locks in another order than
                # the writers of events.
                with installation_lock():
                    rebuild_sums()
                with installation_lock():
                    rebuild_search_text()
        with waiting(self.stderr, "Comparing the sums with the runs"):
            found = check()
        for difference in found.differences:
            self.stderr.write(difference)
        if not found.is_right:
            self.stderr.write("`claudeops rollups --rebuild` makes them anew.")
            sys.exit(1)
        self.stdout.write(f"The sums agree with {found.sessions:,} sessions.")
