"""Set the installation up, start the web server and the worker, and stop both cleanly."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import connections

from escalation import queue
from escalation.agent import capabilities_of, credentials_configured, find_binary
from escalation.host.children import port_is_free
from escalation.host.default_watch import ensure_default_watch
from escalation.host.operator_account import ensure_operator
from escalation.host.parent import become_parent
from escalation.management.commands.drill import DEFAULT_SCENARIO
from escalation.management.refusal import Refused
from escalation.rehearsal.drills.drill import start_drill
from sessions_app.models import Cycle


class Command(BaseCommand):
    help = "Set up this installation and run it: web server and queue worker. Ctrl-C stops both."

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = settings.CLAUDEOPS_HOST, settings.CLAUDEOPS_PORT
        if not port_is_free(host, port):
            raise Refused(
                f"Port {port} on {host} is taken. Stop what runs there, or set CLAUDEOPS_PORT."
            )
        self._prepare()
        address = self.style.SUCCESS(f"Claude Ops is running at http://{host}:{port}/")
        announcement = [*self._first_drill(), address]
        connections.close_all()
        become_parent(host, port, announcement)

    def _prepare(self) -> None:
        call_command("migrate", verbosity=0)
        ensure_default_watch()
        if sentence := ensure_operator():
            self._say(sentence)
        binary = find_binary()
        capabilities = capabilities_of(binary)
        self._say(f"CLI: {binary.version}, {binary.source}, {binary.path}; {capabilities.verdict}")

    def _first_drill(self) -> list[str]:
        """Without a key, a newcomer sees a drill; what is to be said about it."""
        if credentials_configured():
            return []
        said = [
            "No API key is configured, so only drills can run. "
            "Set ANTHROPIC_API_KEY in .env to watch a real system."
        ]
        if not Cycle.objects.exclude(drill="").exists():
            cycle = start_drill(DEFAULT_SCENARIO, enqueue=queue.enqueue)
            said.append(f"Running the drill {cycle.drill}, which costs nothing: see the dashboard.")
        return said

    def _say(self, sentence: str) -> None:
        """At once, also into a pipe: the person waits for it."""
        self.stdout.write(sentence)
        self.stdout.flush()
