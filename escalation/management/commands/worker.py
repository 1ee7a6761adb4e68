"""Runs the queue worker."""

from __future__ import annotations

from typing import Any

from escalation.management.commands.apply import apply_at_start
from escalation.management.output import TerminalCommand
from escalation.worker.worker import run_worker


class Command(TerminalCommand):
    help = (
        "Run the queue worker. It recovers sessions of an earlier one, and ends its own cleanly "
        "on SIGTERM. Signal this process alone, never its group (systemd: KillMode=mixed)."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        apply_at_start(self)
        run_worker()
