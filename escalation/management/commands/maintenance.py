"""Starts and ends maintenance, in which failures are expected."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.errors import OperationRefused
from escalation.management.arguments import watch_named
from escalation.management.commands.probe import iso
from escalation.management.output import Refused, TerminalCommand
from escalation.probes import manage
from sessions_app.models import Maintenance, Watch
from sessions_app.models.installation import moment_text
from sessions_app.text import clean

NO_WINDOW = "There is no maintenance window. Start one: claudeops maintenance start WATCH --for 1h."


class Command(TerminalCommand):
    help = "Start, end and list maintenance: failing probes start nothing in it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        start = verbs.add_parser("start", help="from now on, or from a time")
        start.add_argument("watch")
        start.add_argument("--service", default="", help="only this service")
        start.add_argument("--for", dest="duration", help="like 30m; without it, until `end`")
        start.add_argument("--at", default="", help="when it begins, like '2026-11-22 03:00'")
        start.add_argument("--weekly", action="store_true", help="repeat every week at this time")
        start.add_argument("--reason", default="")
        end = verbs.add_parser("end", help="end all that hold now")
        end.add_argument("watch")
        end.add_argument("--window", type=int, metavar="N", help="remove this one, also a planned")
        listed = verbs.add_parser("list")
        for verb in (start, end, listed):
            verb.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            windows = _windows(options)
        except OperationRefused as refused:
            raise Refused(refused.code, str(refused)) from refused
        if options["json"]:
            self.stdout.write_json([maintenance_as_data(window) for window in windows], indent=2)
            return
        self.stdout.write("\n".join(map(_line, windows)) or NO_WINDOW)


def _windows(options: dict[str, Any]) -> list[Maintenance]:
    match options["verb"]:
        case "start":
            duration = options["duration"]
            return [
                manage.start_maintenance(
                    watch_named(options["watch"]),
                    service=options["service"],
                    starts_at=manage.moment_in(options["at"]),
                    seconds=manage.seconds_in(duration) if duration else None,
                    is_weekly=options["weekly"],
                    reason=options["reason"],
                )
            ]
        case "end" if options["window"] is not None:
            watch = watch_named(options["watch"])
            return [manage.cancel_maintenance(watch, options["window"])]
        case "end":
            return manage.end_maintenance(watch_named(options["watch"]))
        case _:
            return [one for watch in Watch.objects.all() for one in Maintenance.windows_of(watch)]


def _line(window: Maintenance) -> str:
    what = f"{window.watch.name}/{window.service}" if window.service else window.watch.name
    until = f" until {moment_text(window.ends_at)}" if window.ends_at else " until it is ended"
    weekly = ", every week" if window.is_weekly else ""
    now = ", now" if window.holds_now else f" (window {window.pk})"
    reason = f": {window.reason}" if window.reason else ""
    return clean(f"{what}: from {moment_text(window.starts_at)}{until}{weekly}{now}{reason}")


def maintenance_as_data(window: Maintenance) -> dict[str, Any]:
    return {
        "window": window.pk,
        "watch": window.watch.name,
        "service": window.service or None,
        "starts_at": iso(window.starts_at),
        "ends_at": iso(window.ends_at),
        "is_weekly": window.is_weekly,
        "holds_now": window.holds_now,
        "reason": window.reason,
    }
