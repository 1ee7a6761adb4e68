"""Rehearse an incident at no cost."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation import queue
from escalation.management.commands.run_cycle import PrintLine, finish_command
from escalation.management.refusal import Refused, refused_for
from escalation.management.tables import write_table
from escalation.management.terminal import TerminalCommand
from escalation.next_step.cycles import leave_to_caller
from escalation.rehearsal.drills.drill import start_drill, verify_drill
from escalation.rehearsal.drills.scenario import (
    Scenario,
    ScenarioError,
    load_scenario,
    scenario_names,
)
from escalation.run.foreground import run_to_end
from sessions_app.models import Cycle
from sessions_app.reading.plain_text import json_text

DEFAULT_SCENARIO = "three-tiers"
LOOKING = "── A fresh round, told nothing of a fix, looks whether it holds."


def _verify(cycle: Cycle, print_line: PrintLine) -> Cycle | None:
    """In earnest this happens minutes later; whoever plays a drill need not wait."""
    verification = verify_drill(cycle, enqueue=leave_to_caller)
    if verification is None:
        return None
    print_line(LOOKING)
    run_to_end(verification, print_line)
    for incident in verification.incidents.all():
        print_line(f"Incident {incident.pk}: {incident.title}: {incident.get_state_display()}.")
    return verification


class Command(TerminalCommand):
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
        finish_command(
            self,
            cycle,
            queued=options["queue"],
            as_json=options["json"],
            and_then=lambda print_line: _verify(cycle, print_line),
        )

    def _list(self, options: dict[str, Any]) -> None:
        if options["scenario"] or options["fresh"] or options["queue"]:
            raise Refused("--list plays nothing: give it alone, or with --json.")
        readable, broken = _all_scenarios()
        if options["json"]:
            known = [
                {"name": one.name, "title": one.title, "description": one.description}
                for one in readable
            ]
            self.stdout.write(json_text(known, indent=2))
        else:
            rows = [(one.name, f"{one.title}. {one.description}") for one in readable]
            write_table(self, ("scenario", "what happens"), rows)
        if broken:
            raise refused_for(broken)


def _all_scenarios() -> tuple[list[Scenario], list[str]]:
    """Those that can be read, and what is wrong with the others: one must not hide the rest."""
    readable: list[Scenario] = []
    broken: list[str] = []
    for name in scenario_names():
        try:
            readable.append(load_scenario(name))
        except ScenarioError as error:
            broken.append(str(error))
    return readable, broken
