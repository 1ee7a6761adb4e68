"""Let somebody try to log in again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from escalation.management.terminal import TerminalCommand
from sessions_app.access.login_limit import unlock


class Command(TerminalCommand):
    help = "Forget failed logins of an account or an address: it can be tried again at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "who", nargs="?", default="", help="a user name or an address; nothing for all"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        return f"{unlock(options['who'])} failed logins are forgotten."
