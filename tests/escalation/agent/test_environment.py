"""Nothing of the operator's environment reaches the CLI and its tools, except what is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from escalation.agent.environment import (
    CREDENTIALS,
    cli_environment,
    credentials_configured,
    has_credentials,
)

PASSED = {
    "PATH": "/opt/bin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "Europe/Vienna",
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
    "CLAUDE_CODE_SHELL_PREFIX",
    "DISABLE_AUTOUPDATER",
}


def environment_from(surroundings: dict[str, str], also_pass: tuple[str, ...] = ()):
    return cli_environment(
        surroundings,
        home=Path("/state/home"),
        config_directory=Path("/state/claude/cycle-1"),
        api_retries=4,
        also_pass=also_pass,
    )


def test_nothing_leaks_that_is_not_on_the_list():
    environment = environment_from({**PASSED, **SECRETS, "HOME": "/root"})

    assert environment.keys() == PASSED.keys() | SET_BY_US


@pytest.mark.parametrize("name", sorted(PASSED))
def test_what_is_on_the_list_is_passed_as_it_is(name):
    assert environment_from({**PASSED, **SECRETS})[name] == PASSED[name]


def test_an_empty_environment_is_enough():
    assert environment_from({}).keys() == SET_BY_US


def test_an_empty_value_is_not_passed():
    assert "ANTHROPIC_BASE_URL" not in environment_from({"ANTHROPIC_BASE_URL": ""})


def test_a_named_variable_is_passed_and_its_neighbours_are_not():
    environment = environment_from(SECRETS, also_pass=("GITHUB_TOKEN", "NOT_SET"))

    assert environment.keys() == {"GITHUB_TOKEN"} | SET_BY_US


def test_the_cli_has_a_home_and_a_configuration_of_its_own():
    environment = environment_from({"HOME": "/home/ops", "CLAUDE_CONFIG_DIR": "/home/ops/.claude"})

    assert environment["HOME"] == "/state/home"
    assert environment["CLAUDE_CONFIG_DIR"] == "/state/claude/cycle-1"


@pytest.mark.parametrize("name", sorted(SET_BY_US - {"HOME", "PATH"}))
def test_the_operator_cannot_switch_our_own_values_off_by_naming_them(name):
    environment = environment_from({name: "theirs"}, also_pass=(name,))

    assert environment[name] != "theirs"


def test_the_number_of_retries_is_ours():
    assert environment_from({})["CLAUDE_CODE_MAX_RETRIES"] == "4"


@pytest.mark.parametrize("name", CREDENTIALS)
def test_any_of_the_ways_to_log_in_is_enough(name):
    assert has_credentials({name: "x"})


@pytest.mark.parametrize("environment", [{}, {"ANTHROPIC_API_KEY": ""}, {"API_KEY": "x"}])
def test_without_any_of_them_there_are_no_credentials(environment):
    assert not has_credentials(environment)


def test_a_key_in_the_environment_counts_as_configured():
    assert credentials_configured()


def test_without_a_key_nothing_is_configured(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    assert not credentials_configured()


def test_a_token_counts_only_when_the_operator_names_it(monkeypatch, settings):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "x")
    before = credentials_configured()

    settings.CLAUDEOPS_PASS_ENV = ("ANTHROPIC_AUTH_TOKEN",)

    assert (before, credentials_configured()) == (False, True)
