"""Pauses the installation."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.management.output import TerminalCommand
from escalation.worker.schedules import pause


class Command(TerminalCommand):
    help = "Start no new sessions until `claudeops unpause`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("reason", nargs="?", default="by hand")
        parser.add_argument(
            "--stop-running", action="store_true", help="also stop running sessions"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        stopped = pause(options["reason"], stop_running=options["stop_running"])
        return f"Paused: no new tier starts. {stopped} running tiers were asked to stop."
