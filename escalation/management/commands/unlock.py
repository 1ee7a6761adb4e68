"""Unlocks logins."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from escalation.management.output import TerminalCommand
from sessions_app.access.login import unlock


class Command(TerminalCommand):
    help = "Forget failed logins of an account or an address."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "who", nargs="?", default="", help="a user name or an address; empty for all"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        return f"{unlock(options['who'])} failed logins are forgotten."
