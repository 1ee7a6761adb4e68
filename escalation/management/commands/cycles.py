"""Lists cycles."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from escalation.management.arguments import add_stretch_options
from escalation.management.output import TerminalCommand, write_table
from escalation.management.session_text import (
    CYCLE_HEADINGS,
    cycle_as_data,
    cycle_row,
    listed_cycles,
    stretch_line,
)
from sessions_app.models import Cycle
from sessions_app.text import json_text


class Command(TerminalCommand):
    help = "List the latest cycles, newest first, with outcome, reason and cost."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--watch", metavar="NAME", help="only cycles of this watch")
        parser.add_argument(
            "--outcome", choices=Cycle.Outcome.values, help="only cycles with this outcome"
        )
        parser.add_argument("--drills", action="store_true", help="only drills")
        add_stretch_options(parser, limit=20)
        parser.add_argument("--json", action="store_true", help="print it all as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        found = listed_cycles(options["watch"], options["outcome"], drills=options["drills"])
        start = options["offset"]
        shown = list(found[start : start + options["limit"]])
        if options["json"]:
            data = [cycle_as_data(cycle) for cycle in shown]
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
            return
        write_table(self, CYCLE_HEADINGS, [cycle_row(cycle) for cycle in shown])
        self.stdout.write(stretch_line(len(shown), found.count(), start, "cycles"))
