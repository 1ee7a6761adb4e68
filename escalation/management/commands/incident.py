"""Incidents from a terminal: list, show, acknowledge, snooze, note, resolve."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from escalation.errors import OperationRefused
from escalation.incidents import by_person
from escalation.management.exit_codes import ExitCode
from escalation.management.incident_text import (
    incident_as_data,
    incident_in_full,
    list_line,
    show_lines,
)
from escalation.management.references import incident_named, watch_named
from escalation.management.refusal import Refused
from escalation.management.terminal import TerminalCommand
from sessions_app.models import Incident
from sessions_app.reading.incident_text import SNOOZES, snooze_until
from sessions_app.reading.plain_text import json_text
from sessions_app.reading.unresolved_incidents import unresolved_incidents

ACTS = ("acknowledge", "snooze", "note", "resolve", "reopen")
LISTED = 100


class Command(TerminalCommand):
    help = (
        "List and handle incidents. Exit code of list: 0 where nobody is needed, 1 where a person "
        "is, 2 where it could not be done."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list", help="the unresolved ones, worst first")
        listed.add_argument(
            "--all", action="store_true", help="the resolved ones too, newest first"
        )
        listed.add_argument("--watch", help="of this watch alone")
        listed.add_argument("--drills", action="store_true", help="those of drills in their place")
        for verb in ("show", *ACTS):
            chosen = verbs.add_parser(verb)
            chosen.add_argument("number", help="the number of the incident")
            if verb == "snooze":
                chosen.add_argument("--for", dest="period", choices=list(SNOOZES), default="8h")
            if verb == "note":
                chosen.add_argument("text", help="what is to be kept with it")
            if verb == "resolve":
                chosen.add_argument("text", nargs="?", default="", help="what it was")
        for chosen in verbs.choices.values():
            chosen.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "list":
            return self._list(options)
        incident = incident_named(options["number"])
        if options["verb"] in ACTS:
            incident = _act(incident, options)
        self._show(incident, as_json=options["json"])

    def _list(self, options: dict[str, Any]) -> None:
        found = Incident.objects.select_related("watch", "owner")
        found = found if options["all"] else unresolved_incidents()
        found = found.exclude(drill="") if options["drills"] else found.filter(drill="")
        if options["watch"]:
            found = found.filter(watch=watch_named(options["watch"]))
        incidents = list(found[:LISTED])
        if options["json"]:
            data = [incident_as_data(incident) for incident in incidents]
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        else:
            lines = [list_line(incident) for incident in incidents]
            self.stdout.write("\n".join(lines) or "There is no incident.")
        asked = any(incident.asks_for_person for incident in incidents)
        sys.exit(ExitCode.PERSON if asked else ExitCode.WELL)

    def _show(self, incident: Incident, *, as_json: bool) -> None:
        if as_json:
            data = incident_in_full(incident)
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        else:
            self.stdout.write("\n".join(show_lines(incident)))


def _act(incident: Incident, options: dict[str, Any]) -> Incident:
    try:
        match options["verb"]:
            case "acknowledge":
                return by_person.acknowledge(incident)
            case "snooze":
                until = snooze_until(options["period"], timezone.now())
                assert until is not None, "the parser takes no other period"
                return by_person.snooze(incident, until)
            case "note":
                return by_person.note(incident, options["text"])
            case "reopen":
                return by_person.reopen(incident)
        return by_person.resolve(incident, options["text"])
    except OperationRefused as refused:
        raise Refused(refused) from refused
