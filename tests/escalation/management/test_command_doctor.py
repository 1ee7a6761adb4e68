"""`claudeops doctor`: capabilities of the installed CLI, as text and as JSON."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError

from escalation.agent.capabilities import Capabilities
from escalation.errors import WhyNot
from escalation.management.commands import doctor
from tests.escalation.fake_cli import PER_RUN, FakeCli
from tests.escalation.refusals import command_refused
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db

pytestmark = pytest.mark.django_db


def doctor_says(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    code = 0
    try:
        call_command("doctor", *arguments, stdout=out)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    return code, out.getvalue()


@pytest.fixture
def found(fake_cli: FakeCli, settings, monkeypatch):
    """Set the findings of the probe, which has tests of its own."""
    monkeypatch.setattr(doctor, "forget_capabilities", lambda binary: None)
    return lambda **facts: fake_cli.install(settings, **facts)


def test_it_prints_every_finding_and_the_verdict(found, fake_cli):
    found(accumulates_on_fork=True, accumulates_on_resume=None, states_own_share=True)

    code, said = doctor_says()

    lines = {line[:24].strip(): line[25:] for line in said.splitlines()}
    assert code == 0
    assert lines["path"] == str(fake_cli.path)
    assert lines["accumulates on fork"] == "yes"
    assert lines["accumulates on resume"] == "unknown"
    assert lines["appended prompt sticks"] == "no"
    assert lines["missing flags"] == "none"
    assert lines["verdict"].startswith("usable (not seen before, judged by the probe alone)")


def test_without_a_login_it_names_the_file_of_settings_in_use(found, settings, monkeypatch):
    found()
    settings.CLAUDEOPS_ENV_FILE = "/etc/claudeops/env"
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)

    said = doctor_says()[1]

    [line] = [line for line in said.splitlines() if line.startswith("login ")]
    assert "/etc/claudeops/env" in line
    assert " .env" not in said


def test_a_cli_whose_requests_the_api_proxy_refuses_is_named_unusable(found):
    found(refused_by_api_proxy=["warp"], betas_removed=["warp-2027-01-01"])

    code, said = doctor_says()

    lines = {line[:24].strip(): line[25:] for line in said.splitlines()}
    assert code == 2
    assert lines["refused by api proxy"] == "warp"
    assert lines["betas removed"] == "warp-2027-01-01"
    assert lines["verdict"].startswith("unusable: the API proxy refuses its requests (warp)")


def test_with_json_it_prints_data(found):
    found(version="2.1.325 (Claude Code)")

    code, said = doctor_says("--json")

    data = json.loads(said)
    assert code == 0
    sandbox = {"sandbox", "why_no_sandbox", "key", "why_key_inside", "limits"}
    policy = {"new_watch", "scheduled_watches", "budgets", "expected_this_month"}
    ours = {"encrypted", "login", "prices", "telemetry", *policy}
    assert {*PER_RUN, "path", "source", "verdict", *sandbox, *ours} == set(data)
    assert data["login"] == "ANTHROPIC_API_KEY: an API key"
    assert data["encrypted"] == "the key decrypts all checked data"
    assert data["verdict"] == "usable (studied); cost is reported per run"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"works": False, "problem": "a fresh run printed no result"}, "printed no result"),
        ({"missing_flags": ["--resume", "--tools"]}, "it does not know --resume, --tools"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_unusable_cli_exits_with_1(found, facts, why, options):
    found(**facts)

    code, said = doctor_says(*options)

    assert code == 2
    assert "unusable" in said
    assert why in said


def test_capabilities_are_probed_again(fake_cli, settings, monkeypatch):
    fake_cli.install(settings, works=False, problem="an old finding")
    asked: list[str] = []

    def probe(binary):
        asked.append(binary.path)
        facts: dict[str, Any] = {**PER_RUN, "missing_flags": ()}
        return Capabilities(**facts)

    monkeypatch.setattr("escalation.agent.capabilities.find_out", probe)

    code, said = doctor_says()

    assert (code, asked) == (0, [str(fake_cli.path)])
    assert "an old finding" not in said


def test_a_missing_cli_is_an_error_with_advice(settings, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path / "nowhere")

    with command_refused(WhyNot.CLI, match="CLAUDEOPS_CLAUDE_BIN"):
        doctor_says()


def test_a_failing_cli_is_refused_with_its_output(settings, tmp_path):
    broken = tmp_path / "claude"
    broken.write_text("#!/bin/sh\necho missing library >&2\nexit 3\n")
    broken.chmod(0o755)
    settings.CLAUDEOPS_CLAUDE_BIN = str(broken)

    with command_refused(WhyNot.CLI, match="missing library"):
        doctor_says("--json")


def test_defaults_of_a_new_watch_and_budgets_are_printed(found, settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(4)
    SessionFactory(cost_usd=Decimal(1))
    found()

    _code, said = doctor_says()

    assert "look, and runs only on request" in said
    assert "Today, all watches: $1.00 of the $4.00 for today is spent" in said
    assert "expected this month" in said


def test_capabilities_are_printed_without_database_tables(found, monkeypatch):
    def away() -> None:
        raise OperationalError("no such table: sessions")

    monkeypatch.setattr(doctor, "load_budgets", away)
    found()

    code, said = doctor_says()

    assert code == 0
    assert "unknown: no such table: sessions" in said


def test_without_credentials_the_variables_are_named(found, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    found()

    code, said = doctor_says("--probe")

    assert code == 0
    assert "No API key is configured" in said
    assert "login tried" not in said


@pytest.mark.parametrize(("answer", "exit_code"), [((True, "it works"), 0), ((False, "401"), 2)])
def test_with_probe_the_credential_is_tested(found, monkeypatch, answer, exit_code):
    found()
    monkeypatch.setattr(doctor, "try_login", lambda binary, login: answer)

    code, said = doctor_says("--probe")

    assert code == exit_code
    assert answer[1] in said


def test_it_names_sessions_whose_cost_differs_from_their_telemetry(found, settings):
    found()
    SessionFactory(cost_usd=Decimal("0.5"), telemetry_cost_usd=Decimal("0.5"))
    assert json.loads(doctor_says("--json")[1])["telemetry"].startswith("agrees")
    odd = SessionFactory(
        cost_usd=Decimal("0.5"), telemetry_cost_usd=Decimal("0.25"), telemetry_differs=True
    )
    named = json.loads(doctor_says("--json")[1])["telemetry"]
    assert (f"session {odd.pk} " in named, "$0.25" in named, "$0.50" in named) == (True,) * 3
    settings.CLAUDEOPS_CLI_TELEMETRY = False
    assert "CLAUDEOPS_CLI_TELEMETRY" in json.loads(doctor_says("--json")[1])["telemetry"]
