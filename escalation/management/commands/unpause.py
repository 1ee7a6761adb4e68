"""Let tiers start again."""

from __future__ import annotations

from typing import Any

from escalation.host.pause import RUNNING_AGAIN, unpause
from escalation.management.terminal import TerminalCommand
from escalation.queue import enqueue


class Command(TerminalCommand):
    help = "Let tiers start again after `claudeops pause`."

    def handle(self, *args: Any, **options: Any) -> str:
        return RUNNING_AGAIN.format(count=unpause(enqueue=enqueue))
