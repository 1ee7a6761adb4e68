"""Manages the sources that send alerts."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from escalation.alerts import sources
from escalation.alerts.deliveries import send_test
from escalation.alerts.samples import Preview
from escalation.alerts.sources import NewSource
from escalation.errors import OperationRefused, RefusalCode
from escalation.management.arguments import watch_named
from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.output import Refused, TerminalCommand
from sessions_app.models import Delivery, Source
from sessions_app.models.alert import SourceKind
from sessions_app.text import clean

NO_SOURCE = "There is no source yet. Add one: claudeops source add NAME --kind KIND."
NO_SAMPLE = "No delivery was kept yet: let the sender deliver once, or give one with --sample FILE."
SHOWN_ONCE = "They are not shown again: `claudeops source renew` makes new ones."
DELIVERIES_SHOWN = 20


class Command(TerminalCommand):
    help = (
        "Add, list, test, switch and remove sources of alerts, and list their deliveries. The "
        "address and the secret of a source are printed once."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list")
        add = verbs.add_parser("add", help="print its address, its secret and what to paste")
        add.add_argument("name")
        add.add_argument("--kind", required=True, choices=SourceKind.values)
        add.add_argument("--watch", help="watch of the alerts that no route matches")
        add.add_argument(
            "--route",
            action="append",
            default=[],
            metavar="LABEL=VALUE:WATCH",
            help="watch of the alerts with this label; may be repeated",
        )
        add.add_argument("--service-label", default="", help="label that names the service")
        add.add_argument(
            "--path",
            action="append",
            default=[],
            metavar="FIELD=PATH",
            help="kind generic: where a field is, like service=host.name; may be repeated",
        )
        add.add_argument("--no-secret", action="store_true", help="the address alone is enough")
        add.add_argument("--new-only", action="store_true", help="only new problems start a cycle")
        shown = verbs.add_parser("deliveries", help="list the last deliveries")
        shown.add_argument("name", nargs="?")
        renew = verbs.add_parser("renew", help="make another address and secret")
        paths = verbs.add_parser(
            "paths", help="kind generic: choose paths from a sample, and see what is understood"
        )
        paths.add_argument("name")
        paths.add_argument(
            "--sample", metavar="FILE", help="a delivery as JSON; - reads the standard input"
        )
        paths.add_argument(
            "--path",
            action="append",
            default=[],
            metavar="FIELD=PATH",
            help="where a field is; without any, those of the source or guessed ones",
        )
        paths.add_argument("--save", action="store_true", help="read deliveries by these paths")
        for verb in (listed, add, shown, renew, paths):
            verb.add_argument("--json", action="store_true", help="print it as JSON")
        remove = verbs.add_parser("remove")
        for verb in (renew, remove):
            verb.add_argument("--no-input", action="store_true", help="do not ask first")
        for verb in (
            *(verbs.add_parser(name) for name in ("test", "enable", "disable")),
            *(renew, remove),
        ):
            verb.add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["verb"]:
            case "list":
                self._list(as_json=options["json"])
            case "add":
                self._print_new(_added(options), as_json=options["json"])
            case "deliveries":
                self._deliveries(options["name"], as_json=options["json"])
            case "test":
                self._test(_named(options["name"]))
            case "paths":
                self._paths(_named(options["name"]), options)
            case "renew":
                self._renew(_named(options["name"]), options)
            case "remove":
                self._remove(_named(options["name"]), asked=not options["no_input"])
            case verb:
                self._switch(_named(options["name"]), enabled=verb == "enable")

    def _list(self, *, as_json: bool) -> None:
        rows = list(Source.objects.select_related("watch"))
        if as_json:
            self.stdout.write_json([source_as_data(source) for source in rows], indent=2)
        else:
            self.stdout.write("\n".join(map(_line, rows)) or NO_SOURCE)

    def _print_new(self, made: NewSource, *, as_json: bool) -> None:
        if as_json:
            facts = {"address": made.address, "token": made.token, "secret": made.secret}
            data = {**source_as_data(made.source), **facts, "snippet": made.snippet}
            self.stdout.write_secret(json.dumps(data, indent=2))
            return
        self.stdout.write(_line(made.source))
        secret = f"\nSecret:  {made.secret}" if made.secret else ""
        self.stdout.write_secret(f"Address: {made.address}{secret}\n\n{made.snippet}")
        self.stdout.write(f"{SHOWN_ONCE}\nTry it: claudeops source test {made.source.name}")

    def _deliveries(self, name: str | None, *, as_json: bool) -> None:
        rows = Delivery.objects.select_related("source").defer("encrypted_body")
        if name is not None:
            rows = rows.filter(source=_named(name))
        shown = list(rows[:DELIVERIES_SHOWN])
        if as_json:
            self.stdout.write_json([delivery_as_data(row) for row in shown], indent=2)
            return
        self.stdout.write("\n".join(map(_delivery_line, shown)) or "There is no delivery yet.")

    def _test(self, source: Source) -> None:
        delivery = send_test(source)
        self.stdout.write(
            f"Delivery {delivery.pk} was stored. The worker judges it within seconds: "
            f"claudeops source deliveries {source.name}"
        )

    def _paths(self, source: Source, options: dict[str, Any]) -> None:
        given = dict(map(_path, options["path"])) or None
        try:
            body = source.sample
            if options["sample"]:
                body = sources.read_sample(_text_of(options["sample"]))
            elif body is None:
                raise Refused(RefusalCode.NOT_FOUND, NO_SAMPLE)
            seen = sources.preview_of(source, body, given)
            if options["save"]:
                sources.set_paths(source, seen.paths)
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        if options["json"]:
            self.stdout.write_json(_preview_as_data(seen, saved=options["save"]), indent=2)
            return
        for field in seen.fields:
            self.stdout.write(clean(f"{field.name}: {field.chosen or '-'}"))
            for one in field.found if not field.chosen else ():
                self.stdout.write(clean(f"  {one.path}  ({one.example})"))
        self.stdout.write("Understood:" if seen.alerts else f"Nothing: {seen.problem}.")
        for alert in seen.alerts[:DELIVERIES_SHOWN]:
            state = "firing" if alert.is_firing else "resolved"
            self.stdout.write(clean(f"  {alert.service}: {alert.summary} ({state})"))
        saved = "These paths are used from now on." if options["save"] else "Store them: --save."
        self.stdout.write(saved)

    def _renew(self, source: Source, options: dict[str, Any]) -> None:
        if not options["no_input"]:
            confirm_or_stop(self, f"{source.name} stops working until its sender is told. [y/N] ")
        self._print_new(sources.renew(source), as_json=options["json"])

    def _remove(self, source: Source, *, asked: bool) -> None:
        if asked:
            confirm_or_stop(self, f"Remove {source.name} and its deliveries? [y/N] ")
        sources.remove(source)
        self.stdout.write(f"{source.name} was removed.")

    def _switch(self, source: Source, *, enabled: bool) -> None:
        sources.set_enabled(source, enabled=enabled)
        self.stdout.write(f"{source.name} is {'on' if enabled else 'off'}.")


def _added(options: dict[str, Any]) -> NewSource:
    source = Source(
        name=options["name"],
        kind=options["kind"],
        watch=watch_named(options["watch"]) if options["watch"] else None,
        routes="\n".join(map(_route, options["route"])),
        service_label=options["service_label"],
        paths=dict(map(_path, options["path"])),
        runs_again=not options["new_only"],
    )
    if source.watch is None and not source.routes:
        raise Refused(
            RefusalCode.INVALID_ARGUMENTS,
            "Say which watch the alerts belong to: --watch NAME, or --route LABEL=VALUE:WATCH.",
        )
    try:
        return sources.add(source, with_secret=not options["no_secret"])
    except OperationRefused as refused:
        raise Refused(RefusalCode.INVALID_ARGUMENTS, refused) from refused


def _route(text: str) -> str:
    matcher, _, watch = text.partition(":")
    return f"{matcher} {watch}"


def _path(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    return name, path


def _text_of(name: str) -> str:
    """Read a sample from a file or from the standard input."""
    try:
        if name == "-":
            return sys.stdin.read(sources.LONGEST_SAMPLE + 1)
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.read(sources.LONGEST_SAMPLE + 1)
    except OSError as error:
        raise Refused(RefusalCode.FILE, f"{name} cannot be read: {error.strerror}.") from error


def _preview_as_data(seen: Preview, *, saved: bool) -> dict[str, Any]:
    return {
        "paths": seen.paths,
        "found": {
            field.name: {one.path: one.example for one in field.found} for field in seen.fields
        },
        "alerts": [
            {
                "fingerprint": alert.fingerprint,
                "firing": alert.is_firing,
                "service": alert.service,
                "severity": int(alert.severity),
                "summary": alert.summary,
            }
            for alert in seen.alerts
        ],
        "problem": seen.problem or None,
        "saved": saved,
    }


def _named(name: str) -> Source:
    source = Source.objects.select_related("watch").filter(name=name).first()
    if source is None:
        names = ", ".join(Source.objects.values_list("name", flat=True))
        raise Refused(
            RefusalCode.NOT_FOUND,
            f"There is no source {name}. Sources: {names}." if names else NO_SOURCE,
        )
    return source


def _line(source: Source) -> str:
    watch = source.watch.name if source.watch else "by routes"
    return f"{source.name}: {source.kind}, {watch}, {'on' if source.enabled else 'off'}"


def source_as_data(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "kind": source.kind,
        "watch": source.watch.name if source.watch else None,
        "routes": source.routes.splitlines(),
        "enabled": source.enabled,
    }


def _delivery_line(delivery: Delivery) -> str:
    at = delivery.received_at.strftime("%Y-%m-%d %H:%M:%S")
    words = f"{delivery.get_verdict_display()}: {delivery.became}".rstrip(": ")
    return clean(f"{delivery.pk}  {at}  {delivery.source.name}  {delivery.size} bytes  {words}")


def delivery_as_data(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.pk,
        "source": delivery.source.name,
        "received_at": delivery.received_at.isoformat(),
        "size": delivery.size,
        "verdict": delivery.verdict or "waiting",
        "became": delivery.became,
        "alerts": delivery.content,
        "cycle": delivery.cycle_id,
    }
