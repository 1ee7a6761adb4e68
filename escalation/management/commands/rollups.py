"""The sums that the pages read: prove them, or make them anew."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from escalation.management.terminal import TerminalCommand
from sessions_app.reading.rollups import rebuild
from sessions_app.reading.rollups_check import check


class Command(TerminalCommand):
    help = (
        "Hold the sums and the words that the pages read against the runs themselves. Exit code 1: "
        "they differ."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        either = parser.add_mutually_exclusive_group()
        either.add_argument("--check", action="store_true", help="only look (this is the default)")
        either.add_argument(
            "--rebuild",
            action="store_true",
            help="make them anew, e.g. after CLAUDEOPS_TIME_ZONE has changed, and look then",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["rebuild"]:
            rebuild()
        found = check()
        for difference in found.differences:
            self.stderr.write(difference)
        if not found.is_right:
            self.stderr.write("`claudeops rollups --rebuild` makes them anew.")
            sys.exit(1)
        self.stdout.write(f"The sums agree with {found.sessions:,} sessions.")
