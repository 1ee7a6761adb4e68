"""Runs the web server."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from escalation.errors import RefusalCode
from escalation.management.output import Refused, TerminalCommand
from escalation.worker.web_server import main, why_not_bound


class Command(TerminalCommand):
    help = "Run the web server alone, at CLAUDEOPS_HOST and CLAUDEOPS_PORT. SIGTERM stops it."

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = settings.CLAUDEOPS_HOST, settings.CLAUDEOPS_PORT
        if why := why_not_bound(host, port):
            raise Refused(RefusalCode.CANNOT_LISTEN, why)
        main(host, port)
