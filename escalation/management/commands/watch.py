"""What is looked after: list, show, add, edit, remove, pause and unpause watches."""

from __future__ import annotations

import json
from argparse import ArgumentParser, BooleanOptionalAction
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand
from django.core.serializers.json import DjangoJSONEncoder

from escalation.host.default_watch import ensure_default_watch
from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.references import watch_named
from escalation.management.refusal import Refused
from escalation.management.watch_text import list_line, show_lines, watch_as_data
from sessions_app.models import Cycle, Watch


class Command(BaseCommand):
    help = "List, show, add, edit, remove, pause and unpause watches."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list")
        show = verbs.add_parser("show", help="all about a watch, with its last cycles")
        show.add_argument("name")
        show.add_argument("--json", action="store_true")
        add = verbs.add_parser("add")
        add.add_argument("name")
        add.add_argument("workdir", help="the directory that the CLI works in")
        _add_settings(add)
        edit = verbs.add_parser("edit", help="change what is given, leave the rest")
        edit.add_argument("name")
        edit.add_argument("--name", dest="new_name", metavar="NAME", help="call it so from now on")
        edit.add_argument("--workdir", help="the directory that the CLI works in")
        _add_settings(edit)
        switch = edit.add_mutually_exclusive_group()
        switch.add_argument("--enable", dest="enabled", action="store_true", default=None)
        switch.add_argument("--disable", dest="enabled", action="store_false", default=None)
        remove = verbs.add_parser("remove", help="stop looking after it; the record stays")
        remove.add_argument("name")
        remove.add_argument("--no-input", action="store_true", help="do not ask first")
        for verb in ("pause", "unpause"):
            verbs.add_parser(verb).add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        ensure_default_watch()
        match options["verb"]:
            case "list":
                for watch in Watch.objects.all():
                    self.stdout.write(list_line(watch))
            case "show":
                self._show(watch_named(options["name"]), as_json=options["json"])
            case "add":
                self._add(options)
            case "edit":
                self._edit(watch_named(options["name"]), options)
            case "remove":
                self._remove(watch_named(options["name"]), asked=not options["no_input"])
            case "pause":
                self._set_enabled(options["name"], enabled=False)
            case "unpause":
                self._set_enabled(options["name"], enabled=True)

    def _show(self, watch: Watch, *, as_json: bool) -> None:
        if as_json:
            data = watch_as_data(watch)
            text = json.dumps(data, cls=DjangoJSONEncoder, indent=2, ensure_ascii=False)
        else:
            text = "\n".join(show_lines(watch))
        self.stdout.write(text)

    def _add(self, options: dict[str, Any]) -> None:
        watch = Watch(name=options["name"])
        _apply(watch, options)
        watch.save()
        self.stdout.write(f"The watch {watch.name} runs {watch.rhythm} in {watch.workdir}.")

    def _edit(self, watch: Watch, options: dict[str, Any]) -> None:
        changed = _apply(watch, options)
        if not changed:
            raise Refused("Say what to change, for example --every 30 or --no-dry-run.")
        watch.save(update_fields=changed)
        self.stdout.write("\n".join(show_lines(watch)))

    def _remove(self, watch: Watch, *, asked: bool) -> None:
        active = watch.cycles.filter(state__in=Cycle.ACTIVE_STATES).first()
        if active is not None:
            raise Refused(
                f"Cycle {active.pk} of {watch.name} is still {active.get_state_display()}: wait "
                "for it to finish, or stop its session first."
            )
        count = watch.cycles.count()
        if asked:
            confirm_or_stop(
                self, f"Remove the watch {watch.name}? Its {count} cycles stay on record. [y/N] "
            )
        watch.delete()
        self.stdout.write(f"The watch {watch.name} is removed. Its {count} cycles stay on record.")

    def _set_enabled(self, name: str, *, enabled: bool) -> None:
        watch = watch_named(name)
        watch.enabled = enabled
        watch.save(update_fields=["enabled"])
        self.stdout.write(f"The watch {name} is {'on: ' + watch.rhythm if enabled else 'paused'}.")


def _add_settings(parser: ArgumentParser) -> None:
    parser.add_argument("--instructions", help="what Tier 1 is told to look at")
    rhythm = parser.add_mutually_exclusive_group()
    rhythm.add_argument("--every", type=int, metavar="MINUTES", help="minutes between two cycles")
    rhythm.add_argument("--cron", help="a cron expression, in place of --every")
    parser.add_argument("--max-tier", type=int, choices=(1, 2, 3))
    parser.add_argument(
        "--dry-run", action=BooleanOptionalAction, help="look and report, change nothing"
    )


def _apply(watch: Watch, options: dict[str, Any]) -> list[str]:
    """Take over what was given and name the fields; the rest stays. Refuses what is not valid."""
    every = options["every"]
    given = {
        "name": options.get("new_name"),
        "workdir": options["workdir"] and str(Path(options["workdir"]).expanduser().absolute()),
        "instructions": options["instructions"],
        "interval_minutes": every,
        "cron": "" if every is not None else options["cron"],
        "max_tier": options["max_tier"],
        "dry_run": options["dry_run"],
        "enabled": options.get("enabled"),
    }
    changed = {field: value for field, value in given.items() if value is not None}
    for field, value in changed.items():
        setattr(watch, field, value)
    try:
        watch.full_clean()
    except ValidationError as error:
        raise Refused(" ".join(error.messages)) from error
    return list(changed)
