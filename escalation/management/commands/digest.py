"""The daily digest, now."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from escalation.management.terminal import TerminalCommand
from escalation.word.digest import load_digest
from escalation.word.digests import DAY, digest_of, send
from sessions_app.models import Target

SENT = "It goes to {count} targets, each with what it hears of, once a worker or web server sends."
NOBODY = "No target wants a digest: give one a time, on its page."


class Command(TerminalCommand):
    help = "Print what was fixed, needs you, was changed, cost and is flaky, of the last day."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--send", action="store_true", help="send it to the targets that want a digest"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        now = timezone.localtime()
        digest = load_digest(now - DAY, now)
        text = f"{digest.title}\n\n{digest.body}"
        if not options["send"]:
            return text
        wanted = list(Target.objects.filter(enabled=True, digest_at__isnull=False))
        for target in wanted:
            send(target, digest_of(target, now))
        return f"{text}\n\n{SENT.format(count=len(wanted)) if wanted else NOBODY}"
