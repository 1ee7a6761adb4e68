"""Find out what the installed CLI really does."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from escalation.agent import capabilities_of, find_binary, forget_capabilities
from escalation.errors import CliMissing
from escalation.management.refusal import REFUSED_EXIT, Refused


class Command(BaseCommand):
    help = (
        "Run the CLI a few times against the scripted API and print what it does: cost reporting, "
        "resume, fork, flags. Costs nothing. Exit code 2: it cannot be used."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            binary = find_binary()
        except CliMissing as error:
            raise Refused(error) from error
        forget_capabilities(binary)
        capabilities = capabilities_of(binary)
        found = capabilities.as_data(binary)
        if options["json"]:
            self.stdout.write(json.dumps(found, indent=2))
        else:
            for name, value in found.items():
                self.stdout.write(f"{name.replace('_', ' '):24} {_shown(value)}")
        if not capabilities.is_usable:
            sys.exit(REFUSED_EXIT)


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(value) or "none"
    return str(value) or "none"
