"""Lists services with their state."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.management.arguments import watch_named
from escalation.management.output import Cell, TerminalCommand, write_table
from escalation.management.session_text import moment
from escalation.web.services import LOOKS, UNWELL
from sessions_app.models import ServiceState

LISTED = 200
NO_SERVICE = "No report has named a service yet."


class Command(TerminalCommand):
    help = "List the services that reports have named, worst first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--watch", help="only of this watch")
        parser.add_argument("--unwell", action="store_true", help="only those that are not healthy")
        parser.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        found = ServiceState.objects.select_related("watch").order_by("place", "service", "id")
        if options["watch"]:
            found = found.filter(watch=watch_named(options["watch"]))
        if options[UNWELL]:
            found = found.filter(place__lt=ServiceState.place_of(ServiceState.Status.HEALTHY))
        states = list(found[:LISTED])
        if options["json"]:
            self.stdout.write_json([service_as_data(state) for state in states], indent=2)
            return
        if not states:
            self.stdout.write(NO_SERVICE)
        write_table(
            self,
            ("service", "of", "status", "since", "detail"),
            [
                (
                    state.name,
                    state.watch.name,
                    Cell(state.get_status_display(), LOOKS.get(state.status, "")),
                    moment(state.since),
                    state.detail,
                )
                for state in states
            ],
        )


def service_as_data(state: ServiceState) -> dict[str, Any]:
    return {
        "service": state.service,
        "name": state.name,
        "watch": state.watch.name,
        "status": state.status,
        "since": state.since.isoformat(),
        "detail": state.detail,
        "cycle": state.cycle_id,
    }
