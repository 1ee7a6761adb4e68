"""Plays drills."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.agent.event_text import EventLines
from escalation.drills.drill import start_drill, verify_drill, wake_drill
from escalation.drills.scenario import Scenario, ScenarioError, load_scenario, scenario_names
from escalation.errors import RefusalCode
from escalation.management.commands.logs import log_for
from escalation.management.commands.run_cycle import PrintLine, finish_command
from escalation.management.output import (
    Refused,
    TerminalCommand,
    add_verbose_option,
    refused_for,
    waiting,
    write_table,
)
from escalation.queue import leave_to_caller
from escalation.run.runner import run_to_end
from escalation.worker.installation import carry_out, upgrade_ahead
from sessions_app.models import Cycle
from sessions_app.text import json_text

DEFAULT_SCENARIO = "three-tiers"
LOOKING = "── A fresh cycle, which knows nothing of the fix, verifies it."


def _wake(cycle: Cycle, print_line: PrintLine) -> None:
    """Play the probe or the alerts that start the drill, if it has some."""
    if cycle.trigger != Cycle.Trigger.MANUAL:
        with leave_to_caller():
            print_line(f"── {wake_drill(cycle)}")


def _verify(cycle: Cycle, print_line: PrintLine, log: EventLines) -> Cycle | None:
    """Verify the fix at once; outside of drills that happens minutes later."""
    with leave_to_caller():
        verification = verify_drill(cycle)
    if verification is not None:
        print_line(LOOKING)
        run_to_end(verification, print_line, log)
    elif cycle.trigger == Cycle.Trigger.MANUAL:
        return None
    for incident in (verification or cycle).incidents.all():
        print_line(f"Incident {incident.pk}: {incident.title}: {incident.get_state_display()}.")
    return verification


class Command(TerminalCommand):
    help = (
        "Play an incident with the real CLI, permissions and resume; a scenario plays the model. "
        "Costs nothing and never counts in cost summaries."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "scenario", nargs="?", help=f"the scenario to play ({DEFAULT_SCENARIO})"
        )
        parser.add_argument("--list", action="store_true", help="list the scenarios")
        parser.add_argument(
            "--fresh", action="store_true", help="higher tiers start a new conversation, by handoff"
        )
        parser.add_argument("--queue", action="store_true", help="hand the drill to the worker")
        add_verbose_option(parser)
        parser.add_argument(
            "--json", action="store_true", help="print the chain, or the list, as JSON"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            return self._list(options)
        self._make_database()
        try:
            with leave_to_caller(unless=options["queue"]):
                cycle = start_drill(
                    options["scenario"] or DEFAULT_SCENARIO,
                    force_fresh=options["fresh"],
                    in_foreground=not options["queue"],
                )
        except ScenarioError as error:
            raise Refused(RefusalCode.SCENARIO, error) from error
        log = log_for(options, indent="   ")
        finish_command(
            self,
            cycle,
            queued=options["queue"],
            as_json=options["json"],
            log=log,
            first=lambda print_line: _wake(cycle, print_line),
            and_then=lambda print_line: _verify(cycle, print_line, log),
        )

    def _make_database(self) -> None:
        """Set up a fresh installation, as `up` does. An older database is left to `upgrade`."""
        if upgrade_ahead().is_new:
            with waiting(self.stderr, "Preparing the database"):
                carry_out()

    def _list(self, options: dict[str, Any]) -> None:
        if options["scenario"] or options["fresh"] or options["queue"]:
            raise Refused(
                RefusalCode.INVALID_ARGUMENTS, "--list takes no other option than --json."
            )
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
            raise refused_for(RefusalCode.SCENARIO, broken)


def _all_scenarios() -> tuple[list[Scenario], list[str]]:
    """Return the scenarios that can be read, and the errors of the others."""
    readable: list[Scenario] = []
    broken: list[str] = []
    for name in scenario_names():
        try:
            readable.append(load_scenario(name))
        except ScenarioError as error:
            broken.append(str(error))
    return readable, broken
