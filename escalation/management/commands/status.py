"""How this installation stands."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from escalation.management.cycle_text import moment, running_row
from escalation.management.exit_codes import ExitCode
from escalation.management.references import NOTHING_WATCHED
from escalation.management.status import Need, Status, status_now
from escalation.management.status_text import status_as_data
from escalation.management.tables import Cell, write_table
from escalation.management.terminal import TerminalCommand
from sessions_app.reading.formatting import ago, money
from sessions_app.reading.plain_text import json_text


class Command(TerminalCommand):
    help = (
        "What runs, what needs you, what comes next and what today cost. "
        "Exit code 1 while something needs a person."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print it all as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        status = status_now()
        if options["json"]:
            data = status_as_data(status)
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        else:
            self._print(status)
        if status.needs:
            sys.exit(ExitCode.PERSON)

    def _print(self, status: Status) -> None:
        self._head("Running")
        write_table(
            self,
            ("session", "of", "tier", "model", "since", "cost"),
            [running_row(session) for session in status.running],
        )
        waiting = f"{status.queued} queued." if status.queued else ""
        held = f"No new tier starts: {status.held_back}." if status.held_back else ""
        if not status.running or waiting or held:
            first = "" if status.running else "Nothing runs."
            self.stdout.write(" ".join(filter(None, (first, waiting, held))))
        self._head("Needs you")
        write_table(self, ("what", "of", "where", "why"), [_need_row(n) for n in status.needs])
        if not status.needs:
            self.stdout.write("Nothing.", self.style.SUCCESS)
        self._head("Next")
        now = timezone.now()
        write_table(
            self,
            ("watch", "at", "in"),
            [(watch.name, moment(at), ago(at, now)) for watch, at in status.next_runs],
        )
        if not status.next_runs:
            self.stdout.write(NOTHING_WATCHED)
        self._head("Today")
        self.stdout.write(f"{money(status.cost_today_usd)} in {status.runs_today} runs")

    def _head(self, title: str) -> None:
        self.stdout.write(title, self.style.MIGRATE_HEADING)


def _need_row(need: Need) -> tuple[Cell | str, ...]:
    return Cell(need.kind, "warn"), need.what, need.address, need.why
