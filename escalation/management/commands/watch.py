"""What is looked after: list, show, add, edit, trust, remove, pause, unpause."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder

from escalation.errors import OperationRefused
from escalation.host.default_watch import ensure_default_watch
from escalation.host.removal import remove
from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.references import NOTHING_WATCHED, watch_named
from escalation.management.refusal import Refused, refused_for
from escalation.management.tables import write_table
from escalation.management.terminal import TerminalCommand
from escalation.management.watch_options import add_settings, given_fields
from escalation.management.watch_text import (
    HEADINGS,
    added_lines,
    list_row,
    show_lines,
    trust_lines,
    watch_as_data,
)
from sessions_app.models import Watch
from sessions_app.models.trust import Step
from sessions_app.reading.plain_text import json_text

OPTIONS_OF_FIELDS = {"name": "name", "workdir": "workdir", "interval_minutes": "--every"}


class Command(TerminalCommand):
    help = "List, show, add, edit, trust, remove, pause and unpause watches."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help="all watches")
        listing.add_argument("--json", action="store_true")
        show = verbs.add_parser("show", help="all about a watch, with its last cycles")
        show.add_argument("name")
        show.add_argument("--json", action="store_true")
        add = verbs.add_parser("add", help="look after a directory from now on")
        add.add_argument("name")
        add.add_argument("workdir", help="the directory that the CLI works in")
        add_settings(add)
        _add_switch(add)
        edit = verbs.add_parser("edit", help="change what is given, leave the rest")
        edit.add_argument("name")
        edit.add_argument("--name", dest="new_name", metavar="NAME", help="call it so from now on")
        edit.add_argument("--workdir", help="the directory that the CLI works in")
        add_settings(edit)
        _add_switch(edit)
        remove = verbs.add_parser("remove", help="stop looking after it; the record stays")
        remove.add_argument("name")
        remove.add_argument("--no-input", action="store_true", help="do not ask first")
        trust = verbs.add_parser("trust", help="how far it is trusted, and what a step would do")
        trust.add_argument("name")
        trust.add_argument("step", nargs="?", choices=[step.value for step in Step])
        for verb in ("pause", "unpause"):
            verbs.add_parser(verb, help=f"{verb} its schedule").add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        ensure_default_watch()
        match options["verb"]:
            case "list":
                self._list(as_json=options["json"])
            case "show":
                self._show(watch_named(options["name"]), as_json=options["json"])
            case "add":
                self._add(options)
            case "edit":
                self._edit(watch_named(options["name"]), options)
            case "remove":
                self._remove(watch_named(options["name"]), asked=not options["no_input"])
            case "trust":
                self._trust(watch_named(options["name"]), options["step"])
            case "pause":
                self._set_enabled(options["name"], enabled=False)
            case "unpause":
                self._set_enabled(options["name"], enabled=True)

    def _list(self, *, as_json: bool) -> None:
        watches = Watch.objects.select_related("schedule")
        if as_json:
            data = [watch_as_data(watch) for watch in watches]
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
            return
        write_table(self, HEADINGS, [list_row(watch) for watch in watches])
        if not watches:
            self.stdout.write(NOTHING_WATCHED)

    def _show(self, watch: Watch, *, as_json: bool) -> None:
        if as_json:
            data = watch_as_data(watch)
            text = json_text(data, cls=DjangoJSONEncoder, indent=2)
        else:
            text = "\n".join(show_lines(watch))
        self.stdout.write(text)

    def _add(self, options: dict[str, Any]) -> None:
        watch = Watch(name=options["name"])
        _apply(watch, options)
        watch.save()
        self.stdout.write("\n".join(added_lines(watch)))

    def _edit(self, watch: Watch, options: dict[str, Any]) -> None:
        changed = _apply(watch, options)
        if not changed:
            raise Refused("Say what to change, for example --every 30 or --no-dry-run.")
        watch.save(update_fields=changed)
        self.stdout.write("\n".join(show_lines(watch)))

    def _remove(self, watch: Watch, *, asked: bool) -> None:
        count = watch.cycles.count()
        if asked:
            confirm_or_stop(
                self, f"Remove the watch {watch.name}? Its {count} cycles stay on record. [y/N] "
            )
        try:
            remove(watch)
        except OperationRefused as refused:
            raise Refused(refused) from refused
        self.stdout.write(f"The watch {watch.name} is removed. Its {count} cycles stay on record.")

    def _trust(self, watch: Watch, step: str | None) -> None:
        if step is not None:
            watch.trust(Step(step))
            watch.save(update_fields=list(Watch.TRUST_FIELDS))
        self.stdout.write("\n".join(trust_lines(watch)))

    def _set_enabled(self, name: str, *, enabled: bool) -> None:
        watch = watch_named(name)
        watch.enabled = enabled
        watch.save(update_fields=["enabled"])
        self.stdout.write(f"The watch {name} is {'on: ' + watch.rhythm if enabled else 'paused'}.")


def _add_switch(parser: ArgumentParser) -> None:
    switch = parser.add_mutually_exclusive_group()
    switch.add_argument("--enable", dest="enabled", action="store_true", default=None)
    switch.add_argument("--disable", dest="enabled", action="store_false", default=None)


def _apply(watch: Watch, options: dict[str, Any]) -> list[str]:
    """Take over what was given and name the fields; the rest stays. Refuses what is not valid."""
    changed = given_fields(options)
    for field, value in changed.items():
        setattr(watch, field, value)
    if wrong := [*_contradictions(options), *_objections(watch)]:
        raise refused_for(wrong)
    return list(changed)


def _contradictions(options: dict[str, Any]) -> Iterator[str]:
    if options["every"] is not None and options["cron"]:
        yield "--every, --cron: a watch has one rhythm. Give one of the two."


def _objections(watch: Watch) -> Iterator[str]:
    """Everything that is wrong, each with the option that it is about."""
    try:
        watch.full_clean()
    except ValidationError as error:
        for field, messages in error.message_dict.items():
            option = OPTIONS_OF_FIELDS.get(field, f"--{field.replace('_', '-')}")
            yield f"{option}: {' '.join(messages)}"
