"""Prints and follows events of sessions."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet
from django.utils import timezone

from escalation.agent.event_text import describe_event, summary_line
from escalation.management.arguments import SESSION_HELP, count, session_named
from escalation.management.output import TerminalCommand
from escalation.web.live import event_as_data
from sessions_app.models import Session, SessionEvent
from sessions_app.text import json_text


def event_lines(event: SessionEvent) -> Iterator[str]:
    when = timezone.localtime(event.created_at).strftime("%H:%M:%S")
    whose = f"#{event.session_id} {event.session.cycle.subject}"
    for line in describe_event(event.source, event.kind, event.payload):
        yield f"{when} {whose}  {summary_line(line)}"


LOOK_SECONDS = 0.5


class Command(TerminalCommand):
    help = (
        "Print the events of a session, or of all. With -f it follows: until the session ends, "
        "or without an ID until Ctrl-C."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", nargs="?", default="", help=SESSION_HELP)
        parser.add_argument(
            "-f", "--follow", action="store_true", help="print new events as they come"
        )
        parser.add_argument(
            "-n", "--limit", type=count, default=50, metavar="N", help="the last N events (50)"
        )
        parser.add_argument("--drills", action="store_true", help="without an ID: only of drills")
        parser.add_argument("--json", action="store_true", help="print one JSON object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        session = session_named(options["id"]) if options["id"] else None
        events = SessionEvent.objects.select_related("session__cycle__watch").order_by("pk")
        if session:
            events = events.filter(session=session)
        elif options["drills"]:
            events = events.exclude(session__cycle__drill="")
        else:
            events = events.filter(session__cycle__drill="")
        latest = list(events.reverse()[: options["limit"]])[::-1]
        if not latest and not options["follow"]:
            self.stderr.write("There are no events yet.", str)
        self._print(latest, as_json=options["json"])
        if options["follow"]:
            self._follow(session, events, _last_of(latest, events), as_json=options["json"])

    def _follow(
        self,
        session: Session | None,
        events: QuerySet[SessionEvent],
        last: int,
        *,
        as_json: bool,
    ) -> None:
        while True:
            # Read before the events, so that the last events are not missed.
            has_ended = session is not None and not _is_open(session)
            new = list(events.filter(pk__gt=last))
            self._print(new, as_json=as_json)
            last = new[-1].pk if new else last
            if has_ended:
                return
            time.sleep(LOOK_SECONDS)

    def _print(self, events: Iterable[SessionEvent], *, as_json: bool) -> None:
        for event in events:
            if as_json:
                self.stdout.write(json_text(event_as_data(event), cls=DjangoJSONEncoder))
            else:
                for line in event_lines(event):
                    self.stdout.write(line)
        self.stdout.flush()


def _is_open(session: Session) -> bool:
    return Session.objects.filter(pk=session.pk, status__in=Session.OPEN_STATUSES).exists()


def _last_of(shown: list[SessionEvent], events: QuerySet[SessionEvent]) -> int:
    """Return the last event that was shown; with `--limit 0` the last one there is."""
    last = shown[-1] if shown else events.last()
    return last.pk if last else 0
