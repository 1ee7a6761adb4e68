"""Only named variables of the operator's environment reach the CLI and its tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from escalation.agent.binary import (
    cli_environment,
    credential_in,
    credentials_configured,
    has_credentials,
    login_from,
)
from sessions_app.credentials import LOGINS
from tests.tables import each_row

PASSED = {
    "PATH": "/opt/bin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "Europe/Vienna",
}
LOGIN = {
    "ANTHROPIC_API_KEY": "sk-test",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
}
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "x",
    "DATABASE_URL": "postgresql://u:p@h/d",
    "CLAUDEOPS_SECRET_KEY": "x",
    "CLAUDEOPS_ADMIN_PASSWORD": "x",
    "CLAUDEOPS_STATE_DIR": "/x",
    "DJANGO_SETTINGS_MODULE": "claudeops.settings",
    "SSH_AUTH_SOCK": "/x",
    "GITHUB_TOKEN": "x",
    "ANTHROPIC_AUTH_TOKEN": "x",
    "ANTHROPIC_MODEL": "x",
    "CLAUDE_CODE_SHELL_PREFIX": "x",
    "LD_PRELOAD": "x",
    "NODE_OPTIONS": "x",
    "BASH_ENV": "x",
    "PYTHONPATH": "x",
}
SET_BY_US = {
    "HOME",
    "PATH",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_MAX_RETRIES",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
    "DISABLE_AUTOUPDATER",
}


def environment_from(run_environment: dict[str, str], also_pass: tuple[str, ...] = ()):
    return cli_environment(
        run_environment,
        home=Path("/state/home"),
        config_directory=Path("/state/claude/cycle-1"),
        api_retries=4,
        also_pass=also_pass,
    )


def test_only_listed_variables_are_passed():
    environment = environment_from({**PASSED, **LOGIN, **SECRETS, "HOME": "/root"})

    assert environment.keys() == PASSED.keys() | SET_BY_US


@pytest.mark.parametrize("name", sorted(PASSED))
def test_listed_variables_are_passed_unchanged(name):
    assert environment_from({**PASSED, **SECRETS})[name] == PASSED[name]


def test_an_empty_environment_is_enough():
    assert environment_from({}).keys() == SET_BY_US


def test_an_empty_value_is_not_passed():
    assert "LC_ALL" not in environment_from({"LC_ALL": ""})


@each_row("name", sorted({*LOGIN, *LOGINS, "ANTHROPIC_CUSTOM_HEADERS"}))
def test_credentials_never_reach_the_cli_directly_even_when_named(name):
    assert name not in environment_from({name: "secret"}, also_pass=(name,))


def test_the_login_has_credentials_address_and_proxy_of_the_api():
    around = {**LOGIN, **SECRETS, "HTTPS_PROXY": "http://proxy:3128", "PATH": "/bin"}
    opens = {name: value for name, value in SECRETS.items() if name in LOGINS}

    assert login_from(around, ()) == {**LOGIN, **opens, "HTTPS_PROXY": "http://proxy:3128"}


def test_of_named_variables_only_those_of_the_api_are_the_login():
    around = {"ANTHROPIC_CUSTOM_HEADERS": "x", "GITHUB_TOKEN": "x"}

    assert login_from(around, ()) == {}
    assert login_from(around, ("ANTHROPIC_CUSTOM_HEADERS", "GITHUB_TOKEN")) == {
        "ANTHROPIC_CUSTOM_HEADERS": "x"
    }


def test_only_named_variables_are_passed_in_addition():
    environment = environment_from(SECRETS, also_pass=("GITHUB_TOKEN", "NOT_SET"))

    assert environment.keys() == {"GITHUB_TOKEN"} | SET_BY_US


def test_the_cli_has_its_own_home_and_configuration():
    environment = environment_from({"HOME": "/home/ops", "CLAUDE_CONFIG_DIR": "/home/ops/.claude"})

    assert environment["HOME"] == "/state/home"
    assert environment["CLAUDE_CONFIG_DIR"] == "/state/claude/cycle-1"


@each_row("name", sorted(SET_BY_US - {"HOME", "PATH"}))
def test_named_variables_do_not_override_our_own(name):
    environment = environment_from({name: "theirs"}, also_pass=(name,))

    assert environment[name] != "theirs"


def test_the_number_of_retries_is_ours():
    assert environment_from({})["CLAUDE_CODE_MAX_RETRIES"] == "4"


@each_row("name", LOGINS)
def test_any_credential_is_enough(name):
    assert has_credentials({name: "x"})


@pytest.mark.parametrize("environment", [{}, {"ANTHROPIC_API_KEY": ""}, {"API_KEY": "x"}])
def test_without_a_credential_there_are_none(environment):
    assert not has_credentials(environment)


def test_a_key_in_the_environment_counts_as_configured():
    assert credentials_configured()


def test_without_a_key_nothing_is_configured(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    assert not credentials_configured()


@pytest.mark.parametrize("name", LOGINS)
def test_each_credential_variable_counts_as_configured(monkeypatch, name):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv(name, "1")

    assert credentials_configured()


def test_variables_of_a_cloud_provider_are_passed_only_with_its_switch():
    around = {"AWS_SECRET_ACCESS_KEY": "x", "CLOUD_ML_REGION": "here", "AWS_REGION": "there"}

    assert login_from(around, ()) == {}
    assert login_from({**around, "CLAUDE_CODE_USE_BEDROCK": "1"}, ()) == {
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_REGION": "there",
    }


@each_row(
    ("names", "found"),
    [
        ([], ""),
        (["ANTHROPIC_API_KEY"], "ANTHROPIC_API_KEY: an API key"),
        (["CLAUDE_CODE_OAUTH_TOKEN"], "CLAUDE_CODE_OAUTH_TOKEN: a subscription"),
        (["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"], "ANTHROPIC_API_KEY: an API key"),
        (
            ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
            "ANTHROPIC_AUTH_TOKEN: a token for a proxy of your own",
        ),
        (["ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_VERTEX"], "CLAUDE_CODE_USE_VERTEX: Vertex"),
    ],
)
def test_the_credential_in_use_is_named_and_not_shown(names, found):
    assert credential_in(dict.fromkeys(names, "the-secret")) == found
