"""`claudeops config`: every setting with its source, and no secret."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command

from claudeops.env import Variable


def said(*options: str) -> str:
    out = io.StringIO()
    call_command("config", *options, stdout=out, stderr=io.StringIO())
    return out.getvalue()


@pytest.fixture
def variables(settings, monkeypatch):
    settings.CLAUDEOPS_VARIABLES = (
        Variable("CLAUDEOPS_PORT", 8000, "default"),
        Variable("CLAUDEOPS_SANDBOX", "on", "/srv/.env"),
        Variable("CLAUDEOPS_ADMIN_PASSWORD", "battery staple", "environment"),
        Variable("CLAUDEOPS_PING_URL", "https://hc.example.org/1234-5678", "environment"),
        Variable("DATABASE_URL", "postgresql://ops:hunter22@db:5432/ops", "environment"),
        Variable("CLAUDEOPS_TIER1_ALLOWED_TOOLS", ("Read", "Bash"), "default"),
        Variable("CLAUDEOPS_DEBUG", False, "default"),
    )
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")


def test_every_setting_is_printed_with_value_and_source(variables):
    shown = {entry["name"]: entry for entry in json.loads(said("--json"))}

    assert shown["CLAUDEOPS_PORT"] == {
        "name": "CLAUDEOPS_PORT",
        "value": "8000",
        "source": "default",
    }
    assert shown["CLAUDEOPS_SANDBOX"]["source"] == "/srv/.env"
    assert shown["CLAUDEOPS_TIER1_ALLOWED_TOOLS"]["value"] == "Read,Bash"
    assert shown["CLAUDEOPS_DEBUG"]["value"] == "no"
    assert shown["ANTHROPIC_API_KEY"]["source"] == "environment"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_no_secret_is_shown(variables, options):
    text = said(*options)

    for secret in ("battery staple", "1234-5678", "hunter22", "sk-ant-secret"):
        assert secret not in text
    assert "@db:5432/ops" in text


def test_set_lists_only_changed_settings(variables):
    names = [line.split()[0] for line in said("--set").splitlines()]

    assert "CLAUDEOPS_PORT" not in names
    assert {"CLAUDEOPS_SANDBOX", "DATABASE_URL", "ANTHROPIC_API_KEY"} <= set(names)


def test_the_real_settings_are_all_there():
    names = {entry["name"] for entry in json.loads(said("--json"))}

    assert {"CLAUDEOPS_STATE_DIR", "CLAUDEOPS_TIER3_TIMEOUT", "DATABASE_URL"} <= names
    assert len(names) > 50
