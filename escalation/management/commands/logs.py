"""Prints and follows events of sessions."""

from __future__ import annotations

import shutil
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet

from escalation.agent.event_text import (
    LONGEST_SUMMARY,
    EventLines,
    end_of_tier,
    start_of_tier,
    summary_line,
)
from escalation.management.arguments import SESSION_HELP, count, session_named
from escalation.management.output import TerminalCommand, add_verbose_option, is_verbose
from escalation.web.live import CallRows, LogEntry, event_as_data, log_entries
from sessions_app.models import Session, SessionEvent
from sessions_app.models.session import EventKind, EventSource
from sessions_app.text import as_text, json_text, mapping, one_line

LOOK_SECONDS = 0.5
LEAST_COMMAND = 20
DENIAL_OF_CLI = "system/permission_denied"


class CallLines(EventLines):
    """Prints one line for each call, once its result has come, and leaves out the plumbing."""

    def __init__(self, *, with_session: bool = False, indent: str = "") -> None:
        super().__init__(with_session=with_session, indent=indent)
        self._calls: defaultdict[int, CallRows] = defaultdict(CallRows)
        self._denied: set[tuple[int, str]] = set()
        """Sessions and commands whose line says already that they were denied."""

    def of(self, event: SessionEvent) -> Iterator[str]:
        if event.source == EventSource.SUPERVISOR and event.kind == EventKind.STATUS:
            yield from self._status(event)
        calls = self._calls[event.session_id]
        for entry in log_entries([event]):
            if self._is_told(event, calls):
                continue
            row, _ = calls.add(entry)
            if not calls.is_open(row):
                yield from self._row(row)

    def left(self) -> Iterator[str]:
        for calls in self._calls.values():
            yield from self._left_of(calls)

    def _is_told(self, event: SessionEvent, calls: CallRows) -> bool:
        """Return whether a denial is told by the line of its call."""
        if event.kind == DENIAL_OF_CLI:
            return calls.has_open
        command = as_text(mapping(event.payload).get("command"))
        return event.kind == EventKind.COMMAND and (event.session_id, command) in self._denied

    def _status(self, event: SessionEvent) -> Iterator[str]:
        data = mapping(event.payload)
        if data.get("to") == Session.Status.RUNNING:
            yield f"{self.begin(event)}{start_of_tier(event.session)}"
        elif data.get("from") == Session.Status.RUNNING:
            yield from self._left_of(self._calls[event.session_id])
            yield f"{self.begin(event)}{end_of_tier(event.session)}"

    def _left_of(self, calls: CallRows) -> Iterator[str]:
        for row in calls.left():
            yield from self._row(row, "no result")

    def _row(self, row: LogEntry, *facts: str) -> Iterator[str]:
        if row.is_plumbing:
            return
        if row.result is not None and row.result.kind == "denied":
            self._denied |= {(row.event.session_id, line.text) for line in row.lines}
        begin = self.begin(row.event)
        end = "".join(f" · {words}" for words in (*(chip.words for chip in row.chips), *facts))
        for line in row.lines:
            if line.kind == "tool":
                room = max(_width() - len(begin) - len(end), LEAST_COMMAND)
                yield f"{begin}{one_line(f'{line.title}: {line.text}', room)}{end}"
            else:
                yield f"{begin}{summary_line(line)}"


def log_for(
    options: Mapping[str, Any], *, with_session: bool = False, indent: str = ""
) -> EventLines:
    """Return the log that the options of a command ask for."""
    kind = EventLines if is_verbose(options) else CallLines
    return kind(with_session=with_session, indent=indent)


def _width() -> int:
    """Return the columns of the terminal; in a pipe without COLUMNS those of a long line."""
    return shutil.get_terminal_size((LONGEST_SUMMARY, 24)).columns


class Command(TerminalCommand):
    help = (
        "Print what a session, or all, said and did: one line for each call, once it has ended. "
        "With -f it follows: until the session ends, or without an ID until Ctrl-C."
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
        add_verbose_option(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object an event")

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
        as_json = options["json"]
        log = log_for(options, with_session=True)
        is_silent = not self._print(latest, log, as_json=as_json)
        if options["follow"]:
            self._follow(session, events, _last_of(latest, events), log, as_json=as_json)
        elif not self._print_lines(log.left()) and is_silent and latest:
            self.stderr.write(
                f"Nothing was said or called in the last {len(latest)} events: raise -n, or give "
                "--verbose to see them.",
                str,
            )

    def _follow(
        self,
        session: Session | None,
        events: QuerySet[SessionEvent],
        last: int,
        log: EventLines,
        *,
        as_json: bool,
    ) -> None:
        while True:
            # Read before the events, so that the last events are not missed.
            has_ended = session is not None and not _is_open(session)
            new = list(events.filter(pk__gt=last))
            self._print(new, log, as_json=as_json)
            last = new[-1].pk if new else last
            if has_ended:
                self._print_lines(log.left())
                return
            time.sleep(LOOK_SECONDS)

    def _print(self, events: Iterable[SessionEvent], log: EventLines, *, as_json: bool) -> int:
        """Print events, and return the number of lines."""
        return sum(
            self._print_lines(
                [json_text(event_as_data(event), cls=DjangoJSONEncoder)]
                if as_json
                else log.of(event)
            )
            for event in events
        )

    def _print_lines(self, lines: Iterable[str]) -> int:
        written = 0
        for line in lines:
            self.stdout.write(line)
            written += 1
        self.stdout.flush()
        return written


def _is_open(session: Session) -> bool:
    return Session.objects.filter(pk=session.pk, status__in=Session.OPEN_STATUSES).exists()


def _last_of(shown: list[SessionEvent], events: QuerySet[SessionEvent]) -> int:
    """Return the last event that was shown; with `--limit 0` the last one there is."""
    last = shown[-1] if shown else events.last()
    return last.pk if last else 0
