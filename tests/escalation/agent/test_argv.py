"""The command line of a run (REQ-2 and REQ-6, as far as they are about the command line)."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from claudeops.env import Environment, tiers_from
from escalation.agent.binary import (
    NO_CONFIGURATION,
    NO_ENVIRONMENT,
    ClaudeBinary,
    RunRequest,
    build_argv,
    conversation_id,
)
from escalation.report import REPORT_SCHEMA_JSON
from tests.tables import each_row

FORKING = ClaudeBinary(path="/opt/claude", source="PATH", version="2", flags=("--fork-session",))
OLD = ClaudeBinary(path="/opt/claude", source="PATH", version="1", flags=("--resume",))
OWN_ID = "0b0b0b0b-0000-4000-8000-000000000002"
BEGINNINGS = (("new", None), ("resume", "sess_abc123"))
TIERS = tiers_from(Environment({}))

EVERY_RUN = [
    pytest.param(binary, number, resumes, id=f"{name}-tier{number}-{kind}")
    for name, binary in (("forking", FORKING), ("old", OLD))
    for number in (1, 2, 3)
    for kind, resumes in BEGINNINGS
]


def argv_of(binary: ClaudeBinary = FORKING, tier: int = 1, resumes: str | None = None) -> list[str]:
    return build_argv(binary, request_for(tier, resumes))


def request_for(tier: int, resumes: str | None) -> RunRequest:
    return RunRequest(
        tier=TIERS[tier],
        session_id=OWN_ID,
        resumes=resumes,
        report_schema=REPORT_SCHEMA_JSON,
        max_budget_usd=TIERS[tier].max_budget_usd,
    )


def value_of(argv: list[str], flag: str) -> str:
    assert argv.count(flag) == 1
    return argv[argv.index(flag) + 1]


@each_row(("binary", "tier", "resumes"), EVERY_RUN)
def test_req6_session_manager_always_passes_tier_appropriate_tool_flags(binary, tier, resumes):
    argv = argv_of(binary, tier, resumes)

    assert value_of(argv, "--allowedTools") == ",".join(TIERS[tier].allowed_tools)
    denied = ",".join((*TIERS[tier].disallowed_tools, *NO_CONFIGURATION, *NO_ENVIRONMENT))
    assert value_of(argv, "--disallowedTools") == denied
    assert value_of(argv, "--tools") == ",".join(TIERS[tier].tool_names)


@each_row(("binary", "tier", "resumes"), EVERY_RUN)
def test_every_run_has_its_model_and_limits(binary, tier, resumes):
    argv = argv_of(binary, tier, resumes)

    assert value_of(argv, "--model") == TIERS[tier].model
    assert int(value_of(argv, "--max-turns")) == TIERS[tier].max_turns > 0
    assert float(value_of(argv, "--max-budget-usd")) == float(TIERS[tier].max_budget_usd) > 0


def test_a_run_gets_the_rest_of_its_budget():
    request = replace(request_for(2, None), max_budget_usd=Decimal("1E-2"))

    assert value_of(build_argv(FORKING, request), "--max-budget-usd") == "0.01"


def test_a_follow_up_has_no_report_schema():
    request = replace(request_for(2, None), report_schema=None)

    assert "--json-schema" not in build_argv(FORKING, request)


@each_row(("binary", "tier", "resumes"), EVERY_RUN)
def test_req1_every_run_prints_structured_output(binary, tier, resumes):
    argv = argv_of(binary, tier, resumes)

    assert argv[:2] == ["/opt/claude", "-p"]
    assert value_of(argv, "--output-format") == "stream-json"
    assert "--verbose" in argv
    assert value_of(argv, "--json-schema") == REPORT_SCHEMA_JSON


@each_row(("binary", "tier", "resumes"), EVERY_RUN)
def test_no_run_reads_settings_of_the_host(binary, tier, resumes):
    argv = argv_of(binary, tier, resumes)

    assert value_of(argv, "--setting-sources") == ""
    assert value_of(argv, "--permission-mode") == "dontAsk"
    assert "--strict-mcp-config" in argv


@each_row(("binary", "tier", "resumes"), EVERY_RUN)
def test_no_run_lets_the_cli_delete_conversations(binary, tier, resumes):
    settings = json.loads(value_of(argv_of(binary, tier, resumes), "--settings"))

    assert settings["cleanupPeriodDays"] >= 3650


@each_row(
    "flag",
    [
        "--append-system-prompt",
        "--system-prompt",
        "--continue",
        "-c",
        "--dangerously-skip-permissions",
        "--allow-dangerously-skip-permissions",
        "--bare",
        "--add-dir",
    ],
)
@each_row(("binary", "tier", "resumes"), EVERY_RUN)
def test_req2_no_run_is_given_a_flag_that_would_undo_the_sandbox(binary, tier, resumes, flag):
    assert flag not in argv_of(binary, tier, resumes)


@each_row(("binary", "tier", "resumes"), EVERY_RUN)
def test_the_prompt_is_not_in_the_command_line(binary, tier, resumes):
    argv = argv_of(binary, tier, resumes)

    flags = {"-p", "--verbose", "--strict-mcp-config", "--fork-session"}
    positional = [
        entry
        for before, entry in zip(argv, argv[1:], strict=False)
        if not entry.startswith("-") and (not before.startswith("-") or before in flags)
    ]
    assert positional == []


def test_req2_tier_1_escalates_to_tier_2_via_resume():
    argv = argv_of(tier=2, resumes="sess_abc123")

    assert value_of(argv, "--resume") == "sess_abc123"
    assert value_of(argv, "--model") == "sonnet"


def test_req2_tier_2_escalates_to_tier_3_via_resume():
    argv = argv_of(tier=3, resumes="sess_def456")

    assert value_of(argv, "--resume") == "sess_def456"
    assert value_of(argv, "--model") == "opus"
    assert value_of(argv, "--allowedTools") == ",".join(TIERS[3].allowed_tools)


def test_req2_resume_does_not_carry_the_findings_in_a_system_prompt():
    argv = argv_of(tier=2, resumes="sess_abc123")

    assert not [entry for entry in argv if "system-prompt" in entry or "handoff" in entry.lower()]


def test_req6_tier_2_gains_write_and_edit_on_resume():
    first = value_of(argv_of(tier=1), "--allowedTools").split(",")
    second = value_of(argv_of(tier=2, resumes="a"), "--allowedTools").split(",")

    assert {"Write", "Edit"}.isdisjoint(first)
    assert {"Write", "Edit"} <= set(second)


def test_req6_tier_2_disallowed_tools_replace_those_of_tier_1():
    first = value_of(argv_of(tier=1), "--disallowedTools")
    second = value_of(argv_of(tier=2, resumes="a"), "--disallowedTools")

    assert "Bash(docker restart:*)" in first
    assert "Bash(gh pr create:*)" in first
    assert "Bash(docker restart:*)" not in second
    assert "Bash(gh pr create:*)" not in second
    assert "Bash(ansible-playbook:*)" in second


def test_a_run_that_does_not_resume_begins_a_conversation_with_our_own_id():
    argv = argv_of(resumes=None)

    assert value_of(argv, "--session-id") == OWN_ID
    assert "--resume" not in argv
    assert "--fork-session" not in argv


def test_a_resumed_run_forks_into_an_id_of_its_own():
    argv = argv_of(FORKING, 2, "sess_abc123")

    assert argv[2:7] == ["--resume", "sess_abc123", "--fork-session", "--session-id", OWN_ID]


def test_a_cli_that_cannot_fork_resumes_without_a_new_id():
    argv = argv_of(OLD, 2, "sess_abc123")

    assert value_of(argv, "--resume") == "sess_abc123"
    assert "--fork-session" not in argv
    assert "--session-id" not in argv


@pytest.mark.parametrize(
    ("binary", "resumes", "expected"),
    [
        (FORKING, None, OWN_ID),
        (OLD, None, OWN_ID),
        (FORKING, "sess_abc123", OWN_ID),
        (OLD, "sess_abc123", "sess_abc123"),
    ],
)
def test_the_id_to_expect_follows_from_how_the_run_begins(binary, resumes, expected):
    assert conversation_id(binary, request_for(2, resumes)) == expected


@each_row(("binary", "tier", "resumes"), EVERY_RUN)
def test_every_entry_fits_the_limits_of_a_command_line(binary, tier, resumes):
    assert max(len(entry) for entry in argv_of(binary, tier, resumes)) < 128 * 1024


def test_tools_may_not_edit_the_configuration_of_the_cli():
    request = replace(request_for(2, None), config_directory="/state/claude/cycle-1")
    argv = build_argv(FORKING, request)

    assert "Edit(//state/claude/cycle-1/**)" in value_of(argv, "--disallowedTools").split(",")
