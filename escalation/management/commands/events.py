"""Lists what happened: incidents, notifications, and what people changed."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.http import QueryDict

from escalation.management.arguments import count
from escalation.management.output import TerminalCommand, write_table
from escalation.management.session_text import moment
from escalation.web.events import PER_PAGE, Event, load_events
from escalation.web.lists import ONLY_DRILLS
from sessions_app.access.roles import Right

NO_EVENT = "Nothing has happened yet."


class Command(TerminalCommand):
    help = "List what happened, newest first: incidents, notifications, and changes by people."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--drills", action="store_true", help="only those of drills")
        parser.add_argument(
            "--limit",
            type=count,
            default=20,
            metavar="N",
            help=f"how many (20), at most {PER_PAGE}",
        )
        parser.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        asked = QueryDict(f"drill={ONLY_DRILLS}" if options["drills"] else "")
        # A terminal has no roles: docs/access.md.
        events = load_events(asked, frozenset(Right)).events[: options["limit"]]
        if options["json"]:
            self.stdout.write_json([event_as_data(event) for event in events], indent=2)
            return
        if not events:
            self.stdout.write(NO_EVENT)
        write_table(
            self,
            ("time", "what", "by", "of"),
            [(moment(event.at), event.what, event.who, event.title) for event in events],
        )


def event_as_data(event: Event) -> dict[str, Any]:
    return {
        "at": event.at.isoformat(),
        "what": event.what,
        "title": event.title,
        "text": event.text,
        "by": event.who or None,
        "path": event.url or None,
        "drill": event.drill,
    }
