from __future__ import annotations

import pytest

from escalation.sandbox.command_sandbox import clean_environment
from tests.tables import each_row

LOGINS = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_X"),
    *("BASH_ENV", "ENV", "LD_PRELOAD", "BASH_FUNC_ls%%", "CLAUDEOPS_SECRET_KEY"),
)


def test_only_what_is_always_passed_and_what_the_operator_names_comes_through():
    run_environment = {"PATH": "/bin", "TZ": "UTC", "APP_URL": "http://x", "OTHER": "x"}

    found = clean_environment(run_environment, also_pass=["APP_URL", "MISSING"], mark="run-1")

    assert {**run_environment, "CLAUDEOPS_RUN": "run-1"}.items() - found.items() == {("OTHER", "x")}
    assert "OTHER" not in found


@each_row("name", LOGINS)
def test_no_key_and_nothing_that_changes_a_shell_comes_through_even_when_named(name):
    assert name not in clean_environment({name: "x"}, also_pass=[name])


@pytest.mark.parametrize(
    ("switch", "name"),
    [
        ("CLAUDE_CODE_USE_BEDROCK", "AWS_SECRET_ACCESS_KEY"),
        ("CLAUDE_CODE_USE_VERTEX", "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_a_clouds_key_is_kept_back_where_it_is_the_models(switch, name):
    used = clean_environment({switch: "1", name: "x"}, also_pass=[switch, name])
    unused = clean_environment({name: "x"}, also_pass=[name])

    assert name not in used
    assert unused[name] == "x"


def test_a_path_is_there_without_one_around_us():
    assert "/usr/bin" in clean_environment({})["PATH"].split(":")
