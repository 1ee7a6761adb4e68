"""Set the installation up, start the web server and the worker, and stop both cleanly."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from escalation import queue
from escalation.agent import capabilities_of, credentials_configured, find_binary
from escalation.host.children import (
    port_is_free,
    start_children,
    stop_children,
    wait_for_web,
    watch_over,
)
from escalation.host.default_watch import ensure_default_watch
from escalation.host.operator_account import ensure_operator
from escalation.management.commands.drill import DEFAULT_SCENARIO
from escalation.rehearsal.drills.drill import start_drill
from sessions_app.models import Cycle


class Command(BaseCommand):
    help = "Set up this installation and run it: web server and queue worker. Ctrl-C stops both."

    def handle(self, *args: Any, **options: Any) -> None:
        if not port_is_free(settings.CLAUDEOPS_HOST, settings.CLAUDEOPS_PORT):
            raise CommandError(
                f"Port {settings.CLAUDEOPS_PORT} on {settings.CLAUDEOPS_HOST} is taken. Stop what "
                "runs there, or set CLAUDEOPS_PORT."
            )
        self._prepare()
        stop_asked = self._listen_for_stop()
        children = start_children()
        try:
            if wait_for_web(children):
                self._announce()
            trouble = watch_over(children, lambda: bool(stop_asked))
        finally:
            self._say("Stopping the web server and the worker …")
            stop_children(children)
        if trouble:
            raise CommandError(f"{trouble} Its messages are above.")
        self._say("Stopped. `make up` continues where this was.")

    def _say(self, sentence: str) -> None:
        """At once, also into a pipe: the person waits for the address."""
        self.stdout.write(sentence)
        self.stdout.flush()

    def _prepare(self) -> None:
        call_command("migrate", verbosity=0)
        ensure_default_watch()
        if sentence := ensure_operator():
            self._say(sentence)
        binary = find_binary()
        capabilities = capabilities_of(binary)
        self._say(f"CLI: {binary.version}, {binary.source}, {binary.path}; {capabilities.verdict}")

    def _announce(self) -> None:
        if not credentials_configured():
            self._say(
                "No API key is configured, so only drills can run. "
                "Set ANTHROPIC_API_KEY in .env to watch a real system."
            )
            if not Cycle.objects.exclude(drill="").exists():
                cycle = start_drill(DEFAULT_SCENARIO, enqueue=queue.enqueue)
                self._say(
                    f"Running the drill {cycle.drill}, which costs nothing: see the dashboard."
                )
        address = f"http://{settings.CLAUDEOPS_HOST}:{settings.CLAUDEOPS_PORT}/"
        self._say(self.style.SUCCESS(f"Claude Ops is running at {address}"))

    def _listen_for_stop(self) -> list[int]:
        received: list[int] = []

        def remember(number: int, frame: FrameType | None) -> None:
            received.append(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, remember)
        return received
