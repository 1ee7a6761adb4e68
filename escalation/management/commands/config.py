"""Every setting, its value, and who said so."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings

from escalation.host.settings_shown import all_settings
from escalation.management.tables import Cell, write_table
from escalation.management.terminal import TerminalCommand
from sessions_app.reading.plain_text import json_text


class Command(TerminalCommand):
    help = "Every setting, its value, and where it comes from. Secrets are not shown."
    # What is wrong with the settings is to be seen here as well.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--set", action="store_true", help="only those that somebody has set")
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
