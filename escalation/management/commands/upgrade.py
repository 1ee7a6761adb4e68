"""Migrates the database to this version."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from escalation.management.commands.apply import apply_at_start
from escalation.management.output import ExitCode, Refused, TerminalCommand, waiting
from escalation.worker.installation import Upgrade, carry_out, ensure_operator, upgrade_ahead
from sessions_app.text import json_text


class Command(TerminalCommand):
    help = (
        "Migrate the database to this version, and make the first account if needed. Refused "
        "while sessions run. --check only reports: exit code 0 nothing to do, 1 migrations are "
        "waiting, 2 it cannot be done now."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="only report what would be done")
        parser.add_argument("--json", action="store_true", help="with --check: as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        ahead = upgrade_ahead()
        if options["check"]:
            self._say(ahead, as_json=options["json"])
        if ahead.objection:
            raise Refused(ahead.refusal_code, ahead.objection)
        if options["check"]:
            if ahead.waiting:
                sys.exit(ExitCode.PERSON)
            return
        if ahead.waiting:
            with waiting(self.stderr, "Upgrading the database"):
                carry_out()
        self.stdout.write(f"The database is at version {settings.CLAUDEOPS_VERSION}.")
        # An installation without `up` is set up here.
        if not User.objects.exists():
            self.stdout.write(f"The first account: {ensure_operator()}")
        apply_at_start(self)

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
