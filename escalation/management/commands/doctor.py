"""Find out what the installed CLI really does."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from escalation.agent import (
    NO_CREDENTIALS,
    capabilities_of,
    credential_in,
    find_binary,
    forget_capabilities,
    login_from,
    try_login,
)
from escalation.errors import CliMissing
from escalation.management.exit_codes import ExitCode
from escalation.management.policy_text import current_policy
from escalation.management.progress import waiting
from escalation.management.refusal import Refused
from escalation.management.terminal import TerminalCommand
from escalation.rooms.ping import ping_in_rooms
from escalation.web.walls_now import current_walls
from sessions_app.archive.sealed_things import about_older_keys, what_the_key_opens


class Command(TerminalCommand):
    help = (
        "Run the CLI a few times against the scripted API and print what it does: cost reporting, "
        "resume, fork, flags; then which walls hold its runs, and why not more, which login is "
        "found, and whether the key opens what is kept. Costs nothing without --probe. "
        "Exit code 2: it cannot be used."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")
        parser.add_argument(
            "--probe",
            action="store_true",
            help="also ask the real API one short question with the login that is found: that "
            "costs a fraction of a cent",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            binary = find_binary()
        except CliMissing as error:
            raise Refused(error) from error
        forget_capabilities(binary)
        with waiting(self.stderr, "Trying out what the claude CLI can do"):
            capabilities = capabilities_of(binary)
            walls = current_walls()
        login = login_from(os.environ, settings.CLAUDEOPS_PASS_ENV)
        found = {**capabilities.as_data(binary), **walls, **_sealing(), **current_policy()}
        found["login"] = credential_in(login) or NO_CREDENTIALS
        if walls["rooms"]:
            found["ping_in_rooms"] = ping_in_rooms()
        is_let_in = True
        if options["probe"] and credential_in(login):
            with waiting(self.stderr, "Trying the login"):
                is_let_in, found["login_tried"] = try_login(binary, login)
        if options["json"]:
            self.stdout.write(json.dumps(found, indent=2))
        else:
            for name, value in found.items():
                self.stdout.write(f"{name.replace('_', ' '):24} {_shown(value)}")
        refuses = settings.CLAUDEOPS_ROOMS == "on" and not walls["rooms"]
        if not capabilities.is_usable or refuses or not is_let_in:
            sys.exit(ExitCode.REFUSED)


def _sealing() -> dict[str, str]:
    try:
        older = about_older_keys()
        return {"sealed": what_the_key_opens()[1], **({"older_keys": older} if older else {})}
    except (DatabaseError, ImproperlyConfigured) as error:
        return {"sealed": str(error)}


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(value) or "none"
    return str(value) or "none"
