"""Lists settings."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings

from escalation.management.output import Cell, TerminalCommand, write_table
from escalation.worker.health import all_settings
from sessions_app.text import json_text


class Command(TerminalCommand):
    help = "List every setting with its value and source. Secrets are not shown."
    # Problems of settings are printed below the list.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--set", action="store_true", help="only those that are set")
        parser.add_argument("--json", action="store_true", help="print them as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        shown = [
            setting
            for setting in all_settings()
            if not options["set"] or setting.source != "default"
        ]
        if options["json"]:
            self.stdout.write(json_text([setting.as_data() for setting in shown], indent=2))
        else:
            self._print(shown)
        for problem in settings.CONFIGURATION_PROBLEMS:
            self.stderr.write(problem.message)

    def _print(self, shown: list[Any]) -> None:
        rows = [
            (
                setting.name,
                Cell(setting.source, "" if setting.source == "default" else "live"),
                setting.shown,
            )
            for setting in shown
        ]
        write_table(self, ("setting", "from", "value"), rows)
        if self.stdout.isatty():
            self.stdout.write(f"Settings are read from the environment and from {_env_file()}.")


def _env_file() -> str:
    return str(settings.CLAUDEOPS_ENV_FILE)
