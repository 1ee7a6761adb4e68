"""What sessions say, as it is recorded."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet

from escalation.management.event_lines import event_as_data, event_lines
from escalation.management.references import SESSION_HELP, session_named
from escalation.management.run_options import count
from escalation.management.terminal import TerminalCommand
from sessions_app.models import Session, SessionEvent
from sessions_app.reading.plain_text import json_text

LOOK_SECONDS = 0.5


class Command(TerminalCommand):
    help = (
        "What a session says, or all of them together. With -f it goes on as it happens: until "
        "the session ends, or without an ID until Ctrl-C."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", nargs="?", default="", help=SESSION_HELP)
        parser.add_argument("-f", "--follow", action="store_true", help="go on as it happens")
        parser.add_argument(
            "-n", "--limit", type=count, default=50, metavar="N", help="the last N events (50)"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object for each event")

    def handle(self, *args: Any, **options: Any) -> None:
        session = session_named(options["id"]) if options["id"] else None
        events = SessionEvent.objects.select_related("session__cycle__watch").order_by("pk")
        if session:
            events = events.filter(session=session)
        latest = list(events.reverse()[: options["limit"]])[::-1]
        if not latest and not options["follow"]:
            self.stderr.write("Nothing has been recorded here yet.", str)
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
            # Asked before the events are: what is said until the end is then among them.
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
    """Where the rest begins; with `--limit 0` that is what comes from now on."""
    last = shown[-1] if shown else events.last()
    return last.pk if last else 0
