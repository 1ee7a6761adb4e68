"""Prints addresses of pages."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.management.arguments import SESSION_HELP, address_of, session_named
from escalation.management.output import TerminalCommand


class Command(TerminalCommand):
    help = "Print the address of a session's page; without an ID, of the overview."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", nargs="?", default="", help=SESSION_HELP)

    def handle(self, *args: Any, **options: Any) -> str:
        if not options["id"]:
            return address_of()
        return address_of(session_named(options["id"]).get_absolute_url())
