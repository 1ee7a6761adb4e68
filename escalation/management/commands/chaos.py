"""Prove that nothing is lost and nothing doubled, by letting things die."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from escalation.rehearsal import chaos
from escalation.rehearsal.chaos.rounds import Round, play
from escalation.rehearsal.scratch import is_scratch, rerun_in_scratch


class Command(BaseCommand):
    help = (
        "Run drills in a scratch installation and, at random moments, kill the CLI, a worker or "
        "the whole cluster, or lock the database; then check that every session has a true end. "
        "Exit code 1: something was lost, doubled or left behind."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--rounds", type=int, default=10)
        parser.add_argument("--seed", type=int, default=1, help="chooses the faults")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if not is_scratch():
            own = Path(chaos.__file__).parent / "scenarios"
            os.environ["CLAUDEOPS_SCENARIOS_DIR"] = str(own)
            sys.exit(rerun_in_scratch())
        call_command("migrate", verbosity=0)
        played = []
        for entry in play(max(1, options["rounds"]), options["seed"]):
            played.append(entry)
            if not options["json"]:
                self._print_round(entry)
        self._print_end(played, as_json=options["json"])
        if any(entry.violations for entry in played):
            sys.exit(1)

    def _print_round(self, entry: Round) -> None:
        verdict = "; ".join(entry.violations) or "ok"
        self.stdout.write(
            f"{entry.number:4} {entry.fault:18} after {entry.after_seconds:5.2f} s  "
            f"{entry.sessions} sessions  {entry.outcome:14} {verdict}"
        )
        self.stdout.flush()

    def _print_end(self, played: list[Round], *, as_json: bool) -> None:
        broken = sum(1 for entry in played if entry.violations)
        if as_json:
            rounds = [asdict(entry) for entry in played]
            self.stdout.write(json.dumps({"rounds": rounds, "violated": broken}))
            return
        faults = Counter(entry.fault for entry in played)
        outcomes = Counter(entry.outcome for entry in played)
        self.stdout.write(f"faults: {dict(faults)}\noutcomes: {dict(outcomes)}")
        self.stdout.write(f"{len(played)} rounds, {broken} with a violation")
