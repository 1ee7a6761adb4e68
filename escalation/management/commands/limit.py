"""The account's own limit: how things stand, and not waiting for it any more."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from escalation.management.terminal import TerminalCommand
from escalation.next_step.account_clock import LIFTED, lift
from sessions_app.models import AccountClock
from sessions_app.reading.plain_text import json_text


class Command(TerminalCommand):
    help = "Say whether new tiers wait for the account's limit, and how much of it is used."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--lift", action="store_true", help="let waiting tiers start now")
        parser.add_argument("--json", action="store_true", help="how things stand, as JSON")

    def handle(self, *args: Any, **options: Any) -> str:
        if options["lift"]:
            return LIFTED.format(count=lift())
        clock = AccountClock.current()
        if options["json"]:
            return json_text(_as_data(clock), cls=DjangoJSONEncoder, indent=2)
        said = f" The API said: {clock.words}" if clock.is_holding and clock.words else ""
        used = f"\n{clock.fullest}." if clock.fullest else ""
        return f"{_as_sentence(clock.sentence)}{said}{used}"


def _as_data(clock: AccountClock) -> dict[str, Any]:
    return {
        "holding": clock.is_holding,
        "until": clock.until if clock.is_holding else None,
        "why": clock.sentence or None,
        "words": clock.words or None,
        "windows": clock.windows,
    }


def _as_sentence(why: str) -> str:
    return f"{why[0].upper()}{why[1:]}." if why else "No tier waits for the account's limit."
