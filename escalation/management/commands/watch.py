"""List, add, pause and unpause watches."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from escalation.host.default_watch import ensure_default_watch
from sessions_app.models import Watch


class Command(BaseCommand):
    help = "List, add, pause and unpause watches."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list")
        add = verbs.add_parser("add")
        add.add_argument("name")
        add.add_argument("workdir", help="the directory that the CLI works in")
        add.add_argument("--instructions", default="", help="what Tier 1 is told to look at")
        add.add_argument("--every", type=int, metavar="MINUTES", help="minutes between two cycles")
        add.add_argument("--cron", default="", help="a cron expression, in place of --every")
        add.add_argument("--max-tier", type=int, choices=(1, 2, 3))
        add.add_argument("--dry-run", action="store_true", default=None)
        for verb in ("pause", "unpause"):
            verbs.add_parser(verb).add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        ensure_default_watch()
        match options["verb"]:
            case "list":
                self._list()
            case "add":
                self._add(options)
            case "pause":
                self._set_enabled(options["name"], enabled=False)
            case "unpause":
                self._set_enabled(options["name"], enabled=True)

    def _list(self) -> None:
        for watch in Watch.objects.all():
            limits = f"up to Tier {watch.max_tier}" + (", dry run" if watch.dry_run else "")
            self.stdout.write(f"{watch.name:20} {watch.rhythm:16} {limits:24} {watch.workdir}")

    def _add(self, options: dict[str, Any]) -> None:
        chosen = {
            "interval_minutes": options["every"],
            "max_tier": options["max_tier"],
            "dry_run": options["dry_run"],
        }
        watch = Watch(
            name=options["name"],
            workdir=str(Path(options["workdir"]).expanduser().absolute()),
            instructions=options["instructions"],
            cron=options["cron"],
            **{field: value for field, value in chosen.items() if value is not None},
        )
        try:
            watch.full_clean()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        watch.save()
        self.stdout.write(f"The watch {watch.name} runs {watch.rhythm} in {watch.workdir}.")

    def _set_enabled(self, name: str, *, enabled: bool) -> None:
        watch = Watch.objects.filter(name=name).first()
        if watch is None:
            raise CommandError(f"There is no watch {name!r}. `manage.py watch list` shows them.")
        watch.enabled = enabled
        watch.save(update_fields=["enabled"])
        self.stdout.write(f"The watch {name} is {'on: ' + watch.rhythm if enabled else 'paused'}.")
