"""Rehearse an incident at no cost."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from escalation import queue
from escalation.management.commands.run_cycle import finish_command
from escalation.management.refusal import Refused
from escalation.next_step.cycles import leave_to_caller
from escalation.rehearsal.drills.drill import start_drill
from escalation.rehearsal.drills.scenario import ScenarioError, load_scenario, scenario_names

DEFAULT_SCENARIO = "three-tiers"


class Command(BaseCommand):
    help = (
        "Rehearse an incident: the real CLI, permissions and resume, with the model's side played "
        "from a scenario. Costs nothing and never counts in cost summaries."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("scenario", nargs="?", help=f"the one to play ({DEFAULT_SCENARIO})")
        parser.add_argument("--list", action="store_true", help="list the scenarios, play none")
        parser.add_argument(
            "--fresh", action="store_true", help="higher tiers start anew, by handoff"
        )
        parser.add_argument("--queue", action="store_true", help="hand the drill to the worker")
        parser.add_argument(
            "--json", action="store_true", help="print the chain, or the list, as JSON"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            return self._list(options)
        try:
            cycle = start_drill(
                options["scenario"] or DEFAULT_SCENARIO,
                enqueue=queue.enqueue if options["queue"] else leave_to_caller,
                force_fresh=options["fresh"],
            )
        except ScenarioError as error:
            raise Refused(error) from error
        finish_command(self, cycle, queued=options["queue"], as_json=options["json"])

    def _list(self, options: dict[str, Any]) -> None:
        if options["scenario"] or options["fresh"] or options["queue"]:
            raise Refused("--list plays nothing: give it alone, or with --json.")
        scenarios = [load_scenario(name) for name in scenario_names()]
        if options["json"]:
            known = [
                {"name": one.name, "title": one.title, "description": one.description}
                for one in scenarios
            ]
            self.stdout.write(json.dumps(known, indent=2, ensure_ascii=False))
            return
        for one in scenarios:
            self.stdout.write(f"{one.name:20} {one.title}. {one.description}")
