"""Show the chain of a session."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from escalation.management.chain_text import chain_lines
from sessions_app.models import Session
from sessions_app.reading.chain import chain_of
from sessions_app.reading.chain_data import chain_as_data


class Command(BaseCommand):
    help = "Show the chain that a session is part of: its tiers, their costs and reasons."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", type=int, help="the number of any session of the chain")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        session = Session.objects.filter(pk=options["id"]).first()
        if session is None:
            raise CommandError(f"There is no session {options['id']}.")
        chain = chain_of(session)
        if options["json"]:
            self.stdout.write(json.dumps(chain_as_data(chain), indent=2, ensure_ascii=False))
        else:
            self.stdout.write("\n".join(chain_lines(chain)))
