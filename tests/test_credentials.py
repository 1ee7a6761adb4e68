"""The table of credential variables: nothing else lists them, and each use follows it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from escalation.agent.binary import cli_environment, login_from
from escalation.sandbox.api_proxy import upstream_from
from escalation.sandbox.command_sandbox import clean_environment
from escalation.worker.health import HIDDEN, Setting
from sessions_app.credentials import KEYS, LOGINS, SECRETS, TABLE, signed_with
from sessions_app.redaction.redact import redacted
from tests.documents import ROOT

HOME = ROOT / "sessions_app" / "credentials.py"
NAMES = {row.name: "a-value-that-is-long-enough" for row in TABLE}


def modules() -> list[Path]:
    packages = ("claudeops", "escalation", "sessions_app")
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def test_no_other_module_names_a_credential():
    named = {row.name for row in TABLE if row.login or row.is_secret or row.cloud}

    assert [
        f"{path.relative_to(ROOT)}: {node.value}"
        for path in modules()
        if path != HOME
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in named
    ] == []


@pytest.mark.parametrize("name", SECRETS)
def test_the_value_of_a_secret_is_redacted_and_not_shown(name, monkeypatch):
    monkeypatch.setenv(name, "q7Zt-plain-words-9Kx2")

    assert "q7Zt-plain-words-9Kx2" not in redacted("it said q7Zt-plain-words-9Kx2 to us")
    assert Setting(name, "q7Zt-plain-words-9Kx2", "environment").shown == HIDDEN


def test_no_command_gets_a_credential_even_when_named():
    assert set(clean_environment(NAMES, also_pass=NAMES)) & set(NAMES) == set()


def test_the_cli_gets_no_credential_that_the_api_proxy_uses():
    given = cli_environment(
        NAMES, home=Path("/h"), config_directory=Path("/c"), api_retries=1, also_pass=NAMES
    )

    assert {row.name for row in TABLE if row.is_proxied or row.login} & set(given) == set()


def test_a_cloud_provider_uses_only_its_own_variables():
    for switch in (name for name in LOGINS if name not in KEYS):
        others = {name for row in TABLE if (name := row.cloud) and name != switch}
        found = login_from({k: v for k, v in NAMES.items() if k not in others}, ())

        assert set(signed_with(switch)) <= set(found)
        assert not {name for other in others for name in signed_with(other)} & set(found)


def test_an_optional_variable_is_used_only_when_it_is_named():
    optional = {row.name for row in TABLE if row.is_optional}

    assert optional
    assert not optional & set(login_from(NAMES, ()))
    assert optional <= set(login_from(NAMES, optional))


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_sent_in_the_header_of_the_table(name):
    upstream = upstream_from({name: "key"})

    assert upstream is not None
    assert set(upstream.headers) == {"authorization" if KEYS[name].is_bearer else "x-api-key"}
