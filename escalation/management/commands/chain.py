"""Show the chain of a session."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from escalation.management.chain_text import chain_lines
from escalation.management.references import SESSION_HELP, session_named
from sessions_app.reading.chain import chain_of
from sessions_app.reading.chain_data import chain_as_data


class Command(BaseCommand):
    help = "Show the chain that a session is part of: its tiers, their costs and reasons."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", help=SESSION_HELP)
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        chain = chain_of(session_named(options["id"]))
        if options["json"]:
            self.stdout.write(json.dumps(chain_as_data(chain), indent=2, ensure_ascii=False))
        else:
            self.stdout.write("\n".join(chain_lines(chain)))
