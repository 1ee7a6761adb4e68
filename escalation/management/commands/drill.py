"""Rehearse an incident at no cost."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from escalation import queue
from escalation.management.commands.run_cycle import finish_command
from escalation.next_step.cycles import leave_to_caller
from escalation.rehearsal.drills.drill import start_drill
from escalation.rehearsal.drills.scenario import ScenarioError, load_scenario, scenario_names
from escalation.run.foreground import COULD_NOT_RUN_EXIT

DEFAULT_SCENARIO = "three-tiers"


class Command(BaseCommand):
    help = (
        "Rehearse an incident: the real CLI, permissions and resume, with the model's side played "
        "from a scenario. Costs nothing and never counts in cost summaries."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("scenario", nargs="?", default=DEFAULT_SCENARIO)
        parser.add_argument("--list", action="store_true", help="list the scenarios")
        parser.add_argument(
            "--fresh", action="store_true", help="higher tiers start anew, by handoff"
        )
        parser.add_argument("--queue", action="store_true", help="hand the drill to the worker")
        parser.add_argument("--json", action="store_true", help="print the finished chain as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            return self._list()
        try:
            cycle = start_drill(
                options["scenario"],
                enqueue=queue.enqueue if options["queue"] else leave_to_caller,
                force_fresh=options["fresh"],
            )
        except ScenarioError as error:
            raise CommandError(str(error), returncode=COULD_NOT_RUN_EXIT) from error
        finish_command(self, cycle, queued=options["queue"], as_json=options["json"])

    def _list(self) -> None:
        for name in scenario_names():
            scenario = load_scenario(name)
            self.stdout.write(f"{name:20} {scenario.title}. {scenario.description}")
