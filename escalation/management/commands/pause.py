"""Stop all new tiers at once."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.host.pause import pause
from escalation.management.terminal import TerminalCommand


class Command(TerminalCommand):
    help = "Stop all new tiers at once; `claudeops unpause` lets them start again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("reason", nargs="?", default="by hand")
        parser.add_argument("--stop-running", action="store_true", help="also stop running tiers")

    def handle(self, *args: Any, **options: Any) -> str:
        stopped = pause(options["reason"], stop_running=options["stop_running"])
        return f"Paused: no new tier starts. {stopped} running tiers were asked to stop."
