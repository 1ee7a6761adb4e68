"""Run the queue worker."""

from __future__ import annotations

from typing import Any

from escalation.host.worker import run_worker
from escalation.management.terminal import TerminalCommand


class Command(TerminalCommand):
    help = (
        "Run the queue worker. Recovers what an earlier one left behind, and ends its tiers "
        "cleanly on SIGTERM. Signal this process alone, never its group (systemd: KillMode=mixed)."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        run_worker()
