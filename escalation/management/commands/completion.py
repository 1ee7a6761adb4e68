"""Completion for shells."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.management.completion import SHELLS, all_words
from escalation.management.terminal import TerminalCommand


class Command(TerminalCommand):
    help = "Print a script that lets a shell complete our commands, verbs and options."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("shell", choices=list(SHELLS))

    def handle(self, *args: Any, **options: Any) -> str:
        return SHELLS[options["shell"]](all_words())
