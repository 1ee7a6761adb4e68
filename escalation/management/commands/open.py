"""Where a session can be looked at in a browser."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.management.address import address_of
from escalation.management.references import SESSION_HELP, session_named
from escalation.management.terminal import TerminalCommand


class Command(TerminalCommand):
    help = "Print the address of a session's page; without an ID, of the dashboard."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", nargs="?", default="", help=SESSION_HELP)

    def handle(self, *args: Any, **options: Any) -> str:
        if not options["id"]:
            return address_of()
        return address_of(session_named(options["id"]).get_absolute_url())
