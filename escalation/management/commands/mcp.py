"""Serves Claude Ops as tools for other agents: an MCP server on standard input and output."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.api.tools import ACTING, server_of
from escalation.errors import RefusalCode
from escalation.management.arguments import account_named
from escalation.management.output import Refused, TerminalCommand


class Command(TerminalCommand):
    help = (
        "Serve Claude Ops as an MCP server on standard input and output, for other agents. It "
        "reads only, unless --allow names what else it may do."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--allow",
            metavar="ACTIONS",
            default="",
            help=f"actions besides reading, separated by commas: {', '.join(ACTING)}",
        )
        parser.add_argument("--as", metavar="USER", help="the account that acts")

    def handle(self, *args: Any, **options: Any) -> None:
        allowed = [word for word in options["allow"].replace(" ", "").split(",") if word]
        if unknown := [word for word in allowed if word not in ACTING]:
            raise Refused(
                RefusalCode.INVALID_ARGUMENTS,
                f"--allow does not know {', '.join(unknown)}. It knows: {', '.join(ACTING)}.",
            )
        account = account_named(options["as"]) if allowed else None
        server_of(allowed, account).run("stdio")
