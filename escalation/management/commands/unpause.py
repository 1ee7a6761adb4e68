"""Let tiers start again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from escalation.host.pause import RUNNING_AGAIN, unpause
from escalation.queue import enqueue


class Command(BaseCommand):
    help = "Let tiers start again after `manage.py pause`."

    def handle(self, *args: Any, **options: Any) -> str:
        return RUNNING_AGAIN.format(count=unpause(enqueue=enqueue))
