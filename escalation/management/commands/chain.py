"""Shows the chain of a session."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.management.arguments import SESSION_HELP, session_named
from escalation.management.output import TerminalCommand
from escalation.management.session_text import chain_lines
from sessions_app.history.chain import chain_as_data, chain_of
from sessions_app.text import json_text


class Command(TerminalCommand):
    help = "Show the chain of a session: tiers, costs and reasons."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", help=SESSION_HELP)
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        chain = chain_of(session_named(options["id"]))
        if options["json"]:
            self.stdout.write(json_text(chain_as_data(chain), indent=2))
        else:
            self.stdout.write("\n".join(chain_lines(chain)))
