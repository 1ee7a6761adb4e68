"""Bring the database to this version."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from escalation.host.operator_account import ensure_operator
from escalation.host.upgrading import Upgrade, carry_out, upgrade_ahead
from escalation.management.exit_codes import ExitCode
from escalation.management.progress import waiting
from escalation.management.refusal import Refused
from escalation.management.terminal import TerminalCommand
from sessions_app.reading.plain_text import json_text


class Command(TerminalCommand):
    help = (
        "Bring the database to this version, with a first account where there is none. Refused "
        "while sessions run. --check only says what "
        "would be done: exit code 0 nothing, 1 something, 2 it must not be done now."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="only say what would be done")
        parser.add_argument("--json", action="store_true", help="with --check: as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        ahead = upgrade_ahead()
        if options["check"]:
            self._say(ahead, as_json=options["json"])
        if ahead.objection:
            raise Refused(ahead.objection)
        if options["check"]:
            if ahead.waiting:
                sys.exit(ExitCode.PERSON)
            return
        if ahead.waiting:
            with waiting(self.stderr, "Upgrading the database"):
                carry_out()
        self.stdout.write(f"The database is at version {settings.CLAUDEOPS_VERSION}.")
        # Where no `up` will ever run, this is what sets an installation up.
        if not User.objects.exists():
            self.stdout.write(f"The first account: {ensure_operator()}")

    def _say(self, ahead: Upgrade, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json_text(_as_data(ahead), indent=2))
            return
        if ahead.is_new:
            self.stdout.write("The database is empty: its tables would be made.")
        elif not ahead.waiting:
            self.stdout.write(f"The database is at version {settings.CLAUDEOPS_VERSION}.")
        else:
            for name in ahead.waiting:
                self.stdout.write(f"would apply {name}")
            self.stdout.write("Make a backup first: `claudeops backup FILE`.")
        runs = ", ".join(f"#{number}" for number in ahead.running)
        self.stdout.write(f"Running now: {runs or 'nothing'}.")


def _as_data(ahead: Upgrade) -> dict[str, Any]:
    return {
        "version": settings.CLAUDEOPS_VERSION,
        "waiting": ahead.waiting,
        "unknown": ahead.unknown,
        "running": ahead.running,
        "workers": ahead.workers,
        "objection": ahead.objection or None,
    }
