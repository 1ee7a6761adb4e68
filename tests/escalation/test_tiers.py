from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError

from claudeops.env import Environment, tiers_from
from escalation.command_policy.decision import CommandPolicy, ExecRequest, decide
from escalation.command_policy.grants import grants_for
from escalation.command_policy.understanding import NEVER
from escalation.queue import SessionLimits
from escalation.run.prompts import prompt_files
from escalation.tiers import (
    DEFAULT_TIERS,
    Tier,
    dry_run_sandbox,
    get_tier,
    question_sandbox,
)
from escalation.web.watches import grants_table
from sessions_app.models import Cycle, Watch
from sessions_app.models.autonomy import AutonomyLevel, Policy, autonomy_level_of, objection_to
from sessions_app.models.session import Verdict
from sessions_app.tiers import highest_tier, tier_choices, tier_title

READING = ["Bash", "Read", "Grep", "Glob", "Task", "WebFetch", "WebSearch"]
WRITING = [*READING, "Write", "Edit"]

BLOCKED = {
    1: [
        "docker restart",
        "docker stop",
        "docker start",
        "docker rm",
        "docker compose",
        "systemctl restart",
        "systemctl stop",
        "systemctl start",
        "ansible",
        "ansible-playbook",
        "helm",
        "gh pr create",
        "gh pr merge",
        "git push",
        "git commit",
    ],
    2: ["ansible", "ansible-playbook", "helm", "docker compose down", "gh pr merge"],
    3: ["rm -rf /", "docker system prune", "git push --force", "gh pr merge"],
}


@pytest.fixture
def defaults() -> dict[int, Tier]:
    return tiers_from(Environment({}))


def test_there_are_three_tiers_in_order(defaults):
    assert [tier.number for tier in DEFAULT_TIERS] == list(defaults) == [1, 2, 3]


def test_a_name_makes_a_fourth_tier_with_the_settings_of_the_third(defaults):
    named = {"CLAUDEOPS_TIER4_NAME": "disaster recovery", "CLAUDEOPS_TIER4_MODEL": "sonnet"}

    tiers = tiers_from(Environment(named))

    assert list(tiers) == [1, 2, 3, 4]
    assert tiers[4] == replace(defaults[3], number=4, name="disaster recovery", model="sonnet")


def test_a_tier_above_a_missing_one_does_not_exist():
    environment = Environment({"CLAUDEOPS_TIER5_NAME": "too high"})

    assert list(tiers_from(environment)) == [1, 2, 3]
    assert "CLAUDEOPS_TIER5_NAME" not in {variable.name for variable in environment.variables}


@pytest.fixture
def four_tiers(settings) -> None:
    settings.CLAUDEOPS_TIERS = tiers_from(
        Environment({"CLAUDEOPS_TIER4_NAME": "disaster recovery"})
    )


def test_a_fourth_tier_is_known_everywhere(four_tiers):
    free = Policy(max_tier=4, dry_run=False)
    approved = Policy(max_tier=4, dry_run=False, approval_tiers=frozenset({3, 4}))

    assert tier_choices()[-1] == (4, "Tier 4: disaster recovery")
    assert Watch._meta.get_field("max_tier").choices == tier_choices()
    assert Cycle().max_tier == 4
    assert (objection_to(4, free), bool(objection_to(5, free))) == ("", True)
    assert (autonomy_level_of(approved), autonomy_level_of(free)) == (
        AutonomyLevel.ALL_WITH_APPROVAL,
        AutonomyLevel.ALL,
    )
    assert (AutonomyLevel.ALL_WITH_APPROVAL.policy, AutonomyLevel.ALL.policy) == (approved, free)
    assert "role4" in prompt_files()
    assert SessionLimits(4, 1).objection(4, [3])
    assert all(len(row.cells) == 4 for row in grants_table(""))


def test_the_constant_never_is_above_every_tier(four_tiers):
    assert highest_tier() < NEVER
    for tier in (4, 10**9):
        policy = CommandPolicy(tier=tier, grants=grants_for())
        asked = ExecRequest(argv=("reboot",), cwd="/")
        assert decide(policy, asked).verdict == Verdict.DENY


def test_a_stored_tier_that_is_no_longer_configured_is_shown_and_not_started():
    watch = Watch(max_tier=4, approval="3,4")

    assert watch.policy.approval_tiers == {3, 4}
    assert tier_title(4) == "Tier 4"
    assert (get_tier(4).number, get_tier(4).model) == (4, get_tier(3).model)
    assert objection_to(4, watch.policy)
    with pytest.raises(ValidationError) as refused:
        watch.full_clean()
    assert {"max_tier", "approval"} <= set(refused.value.message_dict)


@pytest.mark.parametrize(("number", "model"), [(1, "haiku"), (2, "sonnet"), (3, "opus")])
def test_each_tier_has_its_model(defaults, number, model):
    assert defaults[number].model == model


@pytest.mark.parametrize(("number", "tools"), [(1, READING), (2, WRITING), (3, WRITING)])
def test_each_tier_has_its_tools(defaults, number, tools):
    assert sorted(defaults[number].allowed_tools) == sorted(tools)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_tier_blocks_its_commands(defaults, number):
    expected = {f"Bash({prefix}:*)" for prefix in BLOCKED[number]} | {"AskUserQuestion"}

    assert set(defaults[number].disallowed_tools) == expected
    assert len(defaults[number].disallowed_tools) == len(expected)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_tier_has_limits(defaults, number):
    tier = defaults[number]

    assert tier.max_turns >= 1
    assert tier.max_budget_usd > 0
    assert tier.timeout_seconds > 0


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("MODEL", "claude-haiku-4-5", "model", "claude-haiku-4-5"),
        ("ALLOWED_TOOLS", "Read, Bash(git log:*)", "allowed_tools", ("Read", "Bash(git log:*)")),
        (
            *("DISALLOWED_TOOLS", "Bash(rm:*)", "disallowed_tools"),
            ("AskUserQuestion", "Bash(rm:*)"),
        ),
        ("MAX_TURNS", "7", "max_turns", 7),
        ("MAX_BUDGET_USD", "0.25", "max_budget_usd", Decimal("0.25")),
        ("TIMEOUT", "2m", "timeout_seconds", 120),
    ],
)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_environment_overrides_one_value_of_one_tier(
    defaults, number, variable, value, field, expected
):
    environment = Environment({f"CLAUDEOPS_TIER{number}_{variable}": value})

    tiers = tiers_from(environment)

    assert tiers == {**defaults, number: replace(defaults[number], **{field: expected})}
    assert environment.problems == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CLAUDEOPS_TIER1_MAX_TURNS", "0"),
        ("CLAUDEOPS_TIER2_MAX_TURNS", "-1"),
        ("CLAUDEOPS_TIER3_MAX_TURNS", "many"),
        ("CLAUDEOPS_TIER1_MAX_BUDGET_USD", "0"),
        ("CLAUDEOPS_TIER1_MAX_BUDGET_USD", "NaN"),
        ("CLAUDEOPS_TIER1_TIMEOUT", "0s"),
    ],
)
def test_an_invalid_limit_is_refused_by_its_variable(defaults, variable, value):
    environment = Environment({variable: value})

    tiers = tiers_from(environment)

    assert tiers == defaults
    assert [problem.name for problem in environment.problems] == [variable]


def test_tools_of_the_model_are_named_once_and_without_rules(defaults):
    tier = replace(defaults[1], allowed_tools=("Bash(git log:*)", "Bash(ls:*)", "Read"))

    assert tier.tool_names == ("Bash", "Read")


@pytest.mark.parametrize("number", [2, 3])
def test_a_dry_run_has_the_model_but_not_the_tools_of_a_higher_tier(defaults, number):
    walled = dry_run_sandbox(defaults[number], defaults[1])

    assert walled.model == defaults[number].model
    assert sorted(walled.allowed_tools) == sorted(READING)


@pytest.mark.parametrize("number", [2, 3])
def test_a_dry_run_blocks_what_either_tier_blocks(defaults, number):
    walled = dry_run_sandbox(defaults[number], defaults[1])

    either = {*defaults[number].disallowed_tools, *defaults[1].disallowed_tools}
    assert set(walled.disallowed_tools) == either
    assert len(walled.disallowed_tools) == len(either)


@pytest.mark.parametrize("number", [2, 3])
def test_a_dry_run_shows_the_writing_tools_without_allowing_them(defaults, number):
    walled = dry_run_sandbox(defaults[number], defaults[1])

    assert {"Write", "Edit"} <= set(walled.tool_names)
    assert not {"Write", "Edit"} & set(walled.allowed_tools)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_follow_up_has_reading_tools_only(defaults, number):
    walled = question_sandbox(defaults[number])

    others = set(defaults[number].tool_names) - {"Read", "Grep", "Glob"}
    assert set(walled.allowed_tools) == {"Read", "Grep", "Glob"}
    assert others | set(defaults[number].disallowed_tools) == set(walled.disallowed_tools)
    assert walled.model == defaults[number].model


@pytest.mark.parametrize(
    ("configured", "own", "allowed"),
    [
        (("Read", "WebFetch"), ("Bash", "Read", "WebFetch"), ("Read", "WebFetch")),
        (("Read", "Grep"), ("Read",), ("Read",)),
        (("Bash(git log:*)",), ("Bash", "Read"), ("Bash(git log:*)",)),
        (("Bash",), ("Bash(git log:*)", "Bash(ls:*)"), ("Bash(git log:*)", "Bash(ls:*)")),
        (("Bash(git log:*)",), ("Bash(ls:*)", "Read"), ()),
        (("Write",), ("Bash", "Read"), ()),
    ],
)
def test_tools_of_a_follow_up_are_limited_to_those_of_the_tier(
    settings, defaults, configured, own, allowed
):
    settings.CLAUDEOPS_FOLLOW_UP_TOOLS = configured
    tier = replace(defaults[1], allowed_tools=own)

    walled = question_sandbox(tier)

    assert walled.allowed_tools == allowed
    assert set(tier.tool_names) - set(walled.tool_names) <= set(walled.disallowed_tools)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_questions_to_the_user_are_blocked_at_every_tier(number):
    environment = Environment(
        {
            f"CLAUDEOPS_TIER{number}_ALLOWED_TOOLS": "Read,AskUserQuestion",
            f"CLAUDEOPS_TIER{number}_DISALLOWED_TOOLS": "Bash(rm:*)",
        }
    )

    assert "AskUserQuestion" in tiers_from(environment)[number].disallowed_tools


def test_a_dry_run_adds_no_tools_to_a_narrowed_tier_1(defaults):
    observer = replace(defaults[1], allowed_tools=("Read",))

    assert dry_run_sandbox(defaults[3], observer).allowed_tools == ("Read",)


def test_a_tier_is_found_by_its_number(settings, defaults):
    settings.CLAUDEOPS_TIERS = {**defaults, 2: replace(defaults[2], model="mine")}

    assert get_tier(2).model == "mine"
