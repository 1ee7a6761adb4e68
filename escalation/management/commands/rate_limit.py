"""Shows and lifts the wait for the rate limit of the account."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from escalation.management.output import TerminalCommand
from escalation.supervisor.breaker import LIFTED, lift
from sessions_app.models import RateLimit
from sessions_app.text import json_text


class Command(TerminalCommand):
    help = "Show whether new sessions wait for the rate limit, and how much of it is used."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--lift", action="store_true", help="let waiting sessions start now")
        parser.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> str:
        if options["lift"]:
            return LIFTED.format(count=lift())
        limit = RateLimit.current()
        if options["json"]:
            return json_text(_as_data(limit), cls=DjangoJSONEncoder, indent=2)
        said = f" The API said: {limit.words}" if limit.is_holding and limit.words else ""
        used = f"\n{limit.fullest}." if limit.fullest else ""
        return f"{_as_sentence(limit.sentence)}{said}{used}"


def _as_data(limit: RateLimit) -> dict[str, Any]:
    return {
        "holding": limit.is_holding,
        "until": limit.until if limit.is_holding else None,
        "why": limit.sentence or None,
        "words": limit.words or None,
        "windows": limit.windows,
    }


def _as_sentence(why: str) -> str:
    return f"{why[0].upper()}{why[1:]}." if why else "No session waits for the rate limit."
