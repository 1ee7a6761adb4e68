"""System checks, each with advice."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from escalation.checks import (
    check_cli,
    check_prompts,
    check_queue_times,
    check_tool_lists,
    check_workdir,
)
from escalation.run.prompts import prompt_files


def test_a_valid_installation_passes(fake_cli):
    found = [
        *check_queue_times(),
        *check_cli(),
        *check_prompts(),
        *check_tool_lists(),
        *check_workdir(),
    ]

    assert found == []


@pytest.mark.parametrize(
    ("timeout", "retry", "ids"),
    [
        (3601, 3602, []),
        (3600, 3700, ["escalation.E001"]),
        (10, 3700, ["escalation.E001"]),
        (3700, 3700, ["escalation.E002"]),
        (3700, 60, ["escalation.E002"]),
        (10, 5, ["escalation.E001", "escalation.E002"]),
    ],
)
def test_the_timeouts_of_the_queue_must_be_in_order(settings, timeout, retry, ids):
    settings.LONGEST_TIER_SECONDS = 3600
    settings.CLAUDEOPS_QUEUE_TIMEOUT = timeout
    settings.CLAUDEOPS_QUEUE_RETRY = retry

    assert [message.id for message in check_queue_times()] == ids


def test_a_default_watch_on_our_own_code_is_reported(settings):
    settings.CLAUDEOPS_WORKDIR = str(settings.BASE_DIR)

    (found,) = check_workdir()

    assert (found.id, "CLAUDEOPS_WORKDIR" in found.msg) == ("escalation.E006", True)


def test_wrong_queue_time_is_reported_with_the_limit(settings):
    settings.CLAUDEOPS_QUEUE_TIMEOUT = 10

    (message,) = check_queue_times()

    assert "CLAUDEOPS_QUEUE_TIMEOUT is 10 s" in message.msg
    assert message.hint is not None
    assert str(settings.LONGEST_TIER_SECONDS) in message.hint


def test_a_missing_cli_is_reported_with_its_path(settings, tmp_path):
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path / "nowhere")

    (message,) = check_cli()

    assert message.id == "escalation.E003"
    assert str(tmp_path / "nowhere") in message.msg


def test_every_missing_prompt_file_is_reported(settings, tmp_path):
    settings.CLAUDEOPS_PROMPTS_DIR = tmp_path
    (tmp_path / "cycle.md").write_text("here")

    found = check_prompts()

    assert {message.id for message in found} == {"escalation.E004"}
    assert len(found) == len(prompt_files()) - 1
    assert all("CLAUDEOPS_PROMPTS_DIR" in (message.hint or "") for message in found)


def test_prompt_file_with_an_old_name_is_a_warning(settings, tmp_path):
    shutil.copytree(settings.CLAUDEOPS_PROMPTS_DIR, tmp_path, dirs_exist_ok=True)
    settings.CLAUDEOPS_PROMPTS_DIR = tmp_path
    (tmp_path / "cycle.md").rename(tmp_path / "round.md")

    (message,) = check_prompts()

    assert message.id == "escalation.W004"
    assert "cycle.md" in (message.hint or "")


@pytest.mark.parametrize("rule", ["Read", "Bash(git log:*)", "mcp__server__tool", "WebFetch(x,y)"])
def test_a_tool_or_a_rule_is_accepted(settings, rule):
    settings.CLAUDEOPS_TIERS = with_rule(settings, rule)

    assert check_tool_lists() == []


@pytest.mark.parametrize(
    "rule", ["Bash(git", "git log:*", "--flag", "", "Bash()", "two words", "1"]
)
def test_invalid_rule_is_reported_with_its_variable(settings, rule):
    settings.CLAUDEOPS_TIERS = with_rule(settings, rule)

    (message,) = check_tool_lists()

    assert "CLAUDEOPS_TIER2_DISALLOWED_TOOLS" in message.msg
    assert repr(rule) in message.msg


def test_invalid_rule_of_follow_up_tools_is_reported(settings):
    settings.CLAUDEOPS_FOLLOW_UP_TOOLS = ("Read", "two words")

    (message,) = check_tool_lists()

    assert message.msg == "CLAUDEOPS_FOLLOW_UP_TOOLS has 'two words', which is no tool rule."


def with_rule(settings, rule):
    tier = settings.CLAUDEOPS_TIERS[2]
    return {**settings.CLAUDEOPS_TIERS, 2: replace(tier, disallowed_tools=(rule,))}
