"""Prints or sends the daily digest."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from escalation.management.output import TerminalCommand
from escalation.notifications.digest import DAY, digest_of, load_digest, send
from sessions_app.models import Channel

SENT = "Queued for {count} channels; a worker or the web server sends it."
NOBODY = "No channel has a time for the digest: set one on the page of a channel."


class Command(TerminalCommand):
    help = "Print what was fixed, changed, cost, is flaky and needs you, of the last day."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--send", action="store_true", help="send it to the channels with a digest"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        now = timezone.localtime()
        digest = load_digest(now - DAY, now)
        text = f"{digest.title}\n\n{digest.body}"
        if not options["send"]:
            return text
        wanted = list(Channel.objects.filter(enabled=True, digest_at__isnull=False))
        for channel in wanted:
            send(channel, digest_of(channel, now))
        return f"{text}\n\n{SENT.format(count=len(wanted)) if wanted else NOBODY}"
