"""Measure Claude Ops on this machine."""

from __future__ import annotations

import json
import statistics
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from escalation.rehearsal.benchmarks.overhead import measure
from escalation.rehearsal.scratch import is_scratch, rerun_in_scratch

AIM = 1.10


class Command(BaseCommand):
    help = "Measure Claude Ops: a ratio of two things run side by side, in a scratch installation."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "subject",
            choices=["overhead"],
            help="overhead: a three-tier drill through the queue against the bare CLI runs",
        )
        parser.add_argument("--rounds", type=int, default=10)
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if not is_scratch():
            sys.exit(rerun_in_scratch())
        call_command("migrate", verbosity=0)
        found = measure(max(1, options["rounds"]))
        through = statistics.median(found.queue_seconds)
        bare = statistics.median(found.shell_seconds)
        if options["json"]:
            self.stdout.write(
                json.dumps(
                    {
                        "rounds": len(found.queue_seconds),
                        "queue_seconds": through,
                        "shell_seconds": bare,
                        "ratio": found.ratio,
                    }
                )
            )
            return
        self.stdout.write(
            f"three tiers through the queue: {through:.3f} s (median of "
            f"{len(found.queue_seconds)})\n"
            f"the same CLI runs from a script: {bare:.3f} s\n"
            f"ratio: {found.ratio:.3f} (aim: at most {AIM:.2f})"
        )
