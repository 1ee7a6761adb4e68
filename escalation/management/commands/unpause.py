"""Ends a pause."""

from __future__ import annotations

from typing import Any

from escalation.management.output import TerminalCommand
from escalation.worker.schedules import RUNNING_AGAIN, unpause


class Command(TerminalCommand):
    help = "Let sessions start again after `claudeops pause`."

    def handle(self, *args: Any, **options: Any) -> str:
        return RUNNING_AGAIN.format(count=unpause())
