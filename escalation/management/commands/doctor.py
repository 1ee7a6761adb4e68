"""Tests the installed CLI, the sandbox, the login and the encryption key."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError

from escalation.agent.binary import credential_in, find_binary, login_from, no_credentials
from escalation.agent.capabilities import capabilities_of, forget_capabilities, try_login
from escalation.errors import CliMissing
from escalation.management.output import ExitCode, Refused, TerminalCommand, waiting
from escalation.sandbox.proof.proof import proof_ahead
from escalation.web.sandbox import current_sandbox
from escalation.worker.traces import exports
from sessions_app.archive.encryption_key import check_keys, older_keys_status
from sessions_app.costs.spending import load_budgets
from sessions_app.models import SandboxProof, Session, Watch
from sessions_app.models.session import LONG_FIELDS
from sessions_app.text import exact_money


def current_policy() -> dict[str, Any]:
    """Return the policy, or the error of a database that does not answer."""
    try:
        return _policy()
    except DatabaseError as error:
        return {"budgets": [f"unknown: {error}"]}


def _policy() -> dict[str, Any]:
    budgets = load_budgets()
    limits = [f"{budget.label}: {budget.sentence}" for budget in budgets.limited]
    running = Watch.objects.filter(enabled=True).count()
    return {
        "new_watch": f"{Watch().autonomy_title}, and runs only on request",
        "scheduled_watches": f"{running} of {Watch.objects.count()}",
        "budgets": limits or ["no limit"],
        "expected_this_month": budgets.forecast.sentence,
    }


class Command(TerminalCommand):
    help = (
        "Run the CLI a few times against the scripted API and print what it does: cost reporting, "
        "resume, fork, flags; then the sandbox, the login that is found, and whether the key "
        "decrypts what is stored. Costs nothing without --probe. Exit code 2: it cannot be used."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")
        parser.add_argument(
            "--probe",
            action="store_true",
            help="also ask the real API one short question, for a fraction of a cent",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            binary = find_binary()
        except CliMissing as error:
            raise Refused(error.why_not, error) from error
        forget_capabilities(binary)
        with waiting(self.stderr, "Trying out what the claude CLI can do"):
            capabilities = capabilities_of(binary)
            sandbox = current_sandbox()
        login = login_from(os.environ, settings.CLAUDEOPS_PASS_ENV)
        found = {**capabilities.as_data(binary), **sandbox, **_encryption(), **current_policy()}
        found["telemetry"] = _telemetry()
        if settings.OTEL_TRACES_URL:
            found["traces"] = _traces()
        found["login"] = credential_in(login) or no_credentials()
        if sandbox["sandbox"]:
            found["sandbox_proof"] = _proof()
        login_works = True
        if options["probe"] and credential_in(login):
            with waiting(self.stderr, "Trying the login"):
                login_works, found["login_tried"] = try_login(binary, login)
        if options["json"]:
            self.stdout.write_json(found, indent=2)
        else:
            for name, value in found.items():
                self.stdout.write(f"{name.replace('_', ' '):24} {_shown(value)}")
        refuses = settings.CLAUDEOPS_SANDBOX != "off" and not sandbox["sandbox"]
        if not capabilities.is_usable or refuses or not login_works:
            sys.exit(ExitCode.REFUSED)


def _proof() -> str:
    """Describe the sandbox proof; the database need not be there."""
    try:
        ahead, last = proof_ahead(), SandboxProof.objects.defer("rows").first()
    except DatabaseError:
        return "none yet"
    return ahead or (f"{last}" if last else "none yet")


DIFFERENCES_SHOWN = 5


def _telemetry() -> str:
    """Name the latest sessions whose cost differs from the telemetry of their CLI."""
    if not settings.CLAUDEOPS_CLI_TELEMETRY:
        return "not received (CLAUDEOPS_CLI_TELEMETRY)"
    try:
        sessions = Session.objects.filter(telemetry_differs=True).order_by("-pk")
        differing = list(sessions.defer(*LONG_FIELDS)[:DIFFERENCES_SHOWN])
    except DatabaseError as error:
        return f"unknown: {error}"
    if not differing:
        return "agrees with the cost of all sessions that sent it"
    lines = (
        f"session {one.pk} ({one.cli_version}) cost {exact_money(one.cost_usd)}, by telemetry "
        f"{exact_money(one.telemetry_cost_usd)}"
        for one in differing
    )
    return "; ".join(lines)


def _traces() -> str:
    try:
        return exports().said
    except DatabaseError as error:
        return f"unknown: {error}"


def _encryption() -> dict[str, str]:
    try:
        older = older_keys_status()
        return {"encrypted": check_keys()[1], **({"older_keys": older} if older else {})}
    except (DatabaseError, ImproperlyConfigured) as error:
        return {"encrypted": str(error)}


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(value) or "none"
    return str(value) or "none"
