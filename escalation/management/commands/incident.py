"""Lists, shows and handles incidents."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from escalation.errors import OperationRefused, RefusalCode
from escalation.incidents import recorder
from escalation.management.arguments import account_named, incident_named, watch_named
from escalation.management.output import Cell, ExitCode, Refused, TerminalCommand, write_table
from sessions_app.access.roles import Right, may, refusal
from sessions_app.history.incidents import (
    SNOOZES,
    approvals_of,
    changes_of,
    cost_of,
    failed_remedies,
    postmortem,
    sentence_of,
    snooze_until,
    timeline,
    unresolved_incidents,
    wish_of,
)
from sessions_app.models import Incident
from sessions_app.models.installation import moment_text
from sessions_app.text import json_text, money, one_line

WIDTH = 100
HEADINGS = ("incident", "severity", "state", "of", "title")


def incident_row(incident: Incident) -> tuple[Cell | str, ...]:
    state = "seems recovered" if incident.seems_recovered else incident.get_state_display()
    return (
        str(incident.pk),
        incident.get_severity_display(),
        Cell(state, "warn" if incident.asks_for_person else ""),
        incident.subject,
        incident.title,
    )


def show_lines(incident: Incident) -> Iterator[str]:
    cost = cost_of(incident)
    first, last = map(moment_text, (incident.first_seen_at, incident.last_seen_at))
    sentence = sentence_of(incident, cost, timezone.now())
    yield f"Incident {incident.pk}: {sentence} ({incident.subject})"
    yield f"  state         {incident.get_state_display()}, {incident.get_severity_display()}"
    yield f"  wants         {wish_of(incident)}"
    yield f"  seen          {incident.times_seen} times, from {first} to {last}"
    yield f"  who has it    {incident.owner.get_username() if incident.owner else 'nobody'}"
    yield f"  cost          {money(cost.cost_usd)} in {cost.runs} sessions"
    for number, line in enumerate(incident.detail.splitlines()):
        yield f"  {'detail' if number == 0 else '':13} {line}"
    yield "Events:"
    for event in incident.events.select_related("by"):
        who = f" by {event.by.get_username()}" if event.by else ""
        words = f": {one_line(event.text, WIDTH)}" if event.text else ""
        at = timezone.localtime(event.at)
        yield f"  {at:%Y-%m-%d %H:%M} {event.get_kind_display()}{who}{words}"


def postmortem_of(incident: Incident) -> str:
    events, cost = incident.events.select_related("by"), cost_of(incident)
    entries = timeline(incident, events, approvals_of(incident), changes_of(incident), cost)
    return postmortem(incident, entries, cost, now=timezone.now(), with_output=True)


def incident_as_data(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.pk,
        "title": incident.title,
        "kind": incident.kind,
        "watch": incident.watch.name if incident.watch else incident.watch_name or None,
        "drill": incident.drill or None,
        "cause": incident.cause,
        "severity": incident.get_severity_display(),
        "state": incident.state,
        "seems_recovered": incident.seems_recovered,
        "wants": wish_of(incident),
        "detail": incident.detail,
        "first_seen_at": incident.first_seen_at,
        "last_seen_at": incident.last_seen_at,
        "times_seen": incident.times_seen,
        "times_reopened": incident.times_reopened,
        "owner": incident.owner.get_username() if incident.owner else None,
        "acknowledged_at": incident.acknowledged_at,
        "snoozed_until": incident.snoozed_until,
        "verify_at": incident.verify_at,
        "remedy": incident.remedy or None,
        "resolved_at": incident.resolved_at,
        "resolved_as": incident.resolved_as or None,
    }


def incident_in_full(incident: Incident) -> dict[str, Any]:
    events, cost = list(incident.events.select_related("by")), cost_of(incident)
    return {
        **incident_as_data(incident),
        "cycles": list(incident.cycles.order_by("pk").values_list("pk", flat=True)),
        "cost_usd": float(cost.cost_usd),
        "runs": cost.runs,
        "failed_remedies": list(failed_remedies(events)),
        "events": [
            {
                "kind": event.kind,
                "at": event.at,
                "by": event.by.get_username() if event.by else None,
                "text": event.text,
                "cycle": event.cycle_id,
                "session": event.session_id,
            }
            for event in events
        ],
    }


HELP = {"postmortem": "print it as Markdown, with timeline, changes and cost"}
ACTS = ("acknowledge", "snooze", "note", "resolve", "reopen")
LISTED = 100


class Command(TerminalCommand):
    help = (
        "List, show and handle incidents. Exit code of list: 0 if none needs a person, 1 if one "
        "does, 2 if it could not run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list", help="list unresolved incidents, worst first")
        listed.add_argument("--all", action="store_true", help="resolved ones too, newest first")
        listed.add_argument("--watch", help="only of this watch")
        listed.add_argument("--drills", action="store_true", help="only those of drills")
        for verb in ("show", "postmortem", *ACTS):
            chosen = verbs.add_parser(verb, help=HELP.get(verb))
            chosen.add_argument("number", help="the number of the incident")
            if verb == "snooze":
                chosen.add_argument("--for", dest="period", choices=list(SNOOZES), default="8h")
            if verb == "note":
                chosen.add_argument("text", help="the note")
            if verb in ACTS:
                chosen.add_argument("--as", metavar="USER", help="the account that acts")
            if verb == "resolve":
                chosen.add_argument("text", nargs="?", default="", help="the cause or the fix")
        for chosen in verbs.choices.values():
            chosen.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "list":
            return self._list(options)
        incident = incident_named(options["number"])
        if options["verb"] in ACTS:
            incident = _act(incident, options)
        if options["verb"] == "postmortem" and not options["json"]:
            return self.stdout.write(postmortem_of(incident))
        self._show(incident, as_json=options["json"])

    def _list(self, options: dict[str, Any]) -> None:
        every = Incident.objects.select_related("watch", "owner")
        found = every.all() if options["all"] else unresolved_incidents()
        found = found.exclude(drill="") if options["drills"] else found.filter(drill="")
        if options["watch"]:
            found = found.filter(watch=watch_named(options["watch"]))
        incidents = list(found[:LISTED])
        if options["json"]:
            data = [incident_as_data(incident) for incident in incidents]
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        elif incidents:
            write_table(self, HEADINGS, [incident_row(incident) for incident in incidents])
        else:
            self.stdout.write("There is no incident.")
        asked = any(incident.asks_for_person for incident in incidents)
        sys.exit(ExitCode.PERSON if asked else ExitCode.WELL)

    def _show(self, incident: Incident, *, as_json: bool) -> None:
        if as_json:
            data = incident_in_full(incident)
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        else:
            self.stdout.write("\n".join(show_lines(incident)))


def _act(incident: Incident, options: dict[str, Any]) -> Incident:
    by = account_named(options["as"])
    if not may(by, Right.HANDLE_INCIDENTS):
        raise Refused(RefusalCode.NOT_PERMITTED, refusal(by, Right.HANDLE_INCIDENTS))
    try:
        match options["verb"]:
            case "acknowledge":
                return recorder.acknowledge(incident, by=by)
            case "snooze":
                until = snooze_until(options["period"], timezone.now())
                assert until is not None, "the parser takes no other period"
                return recorder.snooze(incident, until, by=by)
            case "note":
                return recorder.add_note(incident, options["text"], by=by)
            case "reopen":
                return recorder.reopen(incident, by=by)
        return recorder.resolve(incident, options["text"], by=by)
    except OperationRefused as refused:
        raise Refused(refused.code, refused) from refused
