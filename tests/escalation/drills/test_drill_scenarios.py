"""The shipped scenarios can be played, and an invalid one is reported with its error."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from escalation.drills import scenario as scenario_module
from escalation.drills.scenario import (
    SCENARIO_DIRECTORY,
    SYSTEM_DIRECTORY,
    Reply,
    ScenarioError,
    ScriptedToolCall,
    load_scenario,
    parse_reply,
    scenario_names,
)
from escalation.report import checked_report
from escalation.tiers import get_tier
from tests.tables import each_row

SHIPPED = scenario_names()
SCENARIO_KEYS = {
    *("title", "description", "prompt", "system", "files", "tier", "aside", "ask"),
    *("meanwhile", "verification", "budget", "probe", "remedy", "alerts"),
}
REPLY_KEYS = {"say", "run", "calls", "report", "usage", "delay", "pace", "error", "times", "limit"}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch) -> Path:
    """The only place where scenarios are looked for in the test."""
    directory = tmp_path / "scenarios"
    directory.mkdir()
    monkeypatch.setattr(scenario_module, "SCENARIO_DIRECTORY", directory)
    return directory


def test_the_scenarios_named_by_commands_exist():
    assert {"all-healthy", "fixed-at-tier-2", "three-tiers", "forbidden-command"} <= set(SHIPPED)


@each_row("name", SHIPPED)
def test_shipped_scenario_has_title_and_description(name):
    scenario = load_scenario(name)

    assert scenario.name == name
    assert scenario.title
    assert scenario.description


@each_row("name", SHIPPED)
def test_a_shipped_scenario_uses_only_known_keys(name):
    data = tomllib.loads((SCENARIO_DIRECTORY / f"{name}.toml").read_text())

    replies = [reply for tier in data.get("tier", {}).values() for reply in tier]
    replies += data.get("aside", []) + data.get("verification", [])
    assert data.keys() <= SCENARIO_KEYS
    assert set().union(*replies) <= REPLY_KEYS
    assert data.get("tier") or data["remedy"]


@each_row("name", SHIPPED)
def test_every_tier_of_a_shipped_scenario_ends_with_a_valid_report(name):
    for replies in load_scenario(name).tiers.values():
        last = replies[-1].calls[-1]

        assert last.tool == "StructuredOutput"
        assert checked_report(dict(last.input))[1] == ""


def fixes_something(name: str) -> bool:
    """The last report is not reached where the budget ends the cycle."""
    scenario = load_scenario(name)
    if scenario.budget is not None or not scenario.tiers:
        return False
    return bool(scenario.tiers[max(scenario.tiers)][-1].calls[-1].input["actions_taken"])


FIXING = [name for name in SHIPPED if fixes_something(name)]
LOOKED_AT_AGAIN = [name for name in FIXING if load_scenario(name).probe is None]


@each_row("name", LOOKED_AT_AGAIN)
def test_a_shipped_scenario_with_a_fix_has_a_verification(name):
    last = load_scenario(name).at_verification().replies_for(1)[-1].calls[-1]

    assert last.tool == "StructuredOutput"
    assert checked_report(dict(last.input))[1] == ""


def test_time_passes_between_fix_and_verification(tmp_path):
    scenario = load_scenario("fix-did-not-hold")
    scenario.write_system(tmp_path)
    (tmp_path / "containers" / "web.state").write_text("Up 1 second")

    scenario.write_changes(tmp_path)

    assert (tmp_path / "containers" / "web.state").read_text().startswith("Exited")


@each_row("name", SHIPPED)
def test_a_shipped_scenario_escalates_exactly_to_the_tiers_that_it_has(name):
    tiers = load_scenario(name).tiers

    asked = {
        n for n, replies in tiers.items() if replies[-1].calls[-1].input["escalation"]["needed"]
    }
    assert sorted(tiers) == list(range(1, len(tiers) + 1))
    assert asked == set(range(1, len(tiers)))


@each_row("name", SHIPPED)
def test_a_shipped_scenario_uses_only_tools_that_its_tiers_are_offered(name):
    for number, replies in load_scenario(name).tiers.items():
        used = {call.tool for reply in replies for call in reply.calls}

        assert used <= {*get_tier(number).tool_names, "StructuredOutput"}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_creates_its_system(name, tmp_path):
    scenario = load_scenario(name)

    scenario.write_system(tmp_path)

    assert (SYSTEM_DIRECTORY / scenario.system).is_dir()
    assert (tmp_path / "CLAUDE-OPS.md").is_file()
    assert (tmp_path / "bin" / "docker").stat().st_mode & 0o111
    assert [file.path for file in scenario.files if not (tmp_path / file.path).is_file()] == []


@each_row("name", ["nonsense", "", "../scenario", "all-healthy.toml", "."])
def test_unknown_scenario_is_reported_with_the_known_ones(name):
    with pytest.raises(ScenarioError, match="Known scenarios: alert-storm, all-healthy, "):
        load_scenario(name)


def test_an_empty_directory_has_no_scenarios(directory):
    with pytest.raises(ScenarioError, match="Known scenarios: none"):
        load_scenario("mine")


@pytest.mark.parametrize(
    "content",
    [
        "title = ",
        b"title = '\xff'",
        "description = 'no title'",
        "title = 'x'\n[[tier.first]]\nsay = 'x'",
        "title = 'x'\n[[tier.1]]\nunknown = 1",
        "title = 'x'\n[[tier.1]]\ncalls = [{ tool = 'Bash' }]",
        "title = 'x'\n[[files]]\nname = 'x'",
        "title = 'x'\ntier = 3",
        "title = 'x'\ndescription = 3",
        "title = 'x'\n[probe]\nname = 'x'",
        "title = 'x'\n[remedy]\nname = 'x'\ncommand = 'x'",
        "title = 'x'\n[[alerts]]\nlevel = 3",
    ],
)
def test_a_broken_scenario_names_its_file(directory, content):
    data = content.encode() if isinstance(content, str) else content
    (directory / "mine.toml").write_bytes(data)

    with pytest.raises(ScenarioError, match=r"mine\.toml"):
        load_scenario("mine")


def test_a_scenario_with_every_key_is_understood(directory):
    (directory / "mine.toml").write_text("""
title = "Mine"
prompt = " Look at db. "
[[files]]
path = "bin/tool"
content = "#!/bin/sh"
executable = true
[[tier.1]]
error = 529
times = 3
delay = 0.5
pace = 0.1
[tier.1.usage]
input_tokens = 7
[[aside]]
say = "I am a subagent."
""")

    scenario = load_scenario("mine")

    assert scenario.prompt == "Look at db."
    assert scenario.replies_for(1) == (
        Reply(error=529, times=3, delay=0.5, pace=0.1, usage={"input_tokens": 7}),
    )
    assert scenario.aside == (Reply(say="I am a subagent."),)
    assert scenario.replies_for(2) == ()


def test_an_executable_file_is_created_executable(directory, tmp_path):
    (directory / "mine.toml").write_text(
        "title = 'x'\n[[files]]\npath = 'bin/a/tool'\ncontent = ''\nexecutable = true"
    )

    load_scenario("mine").write_system(tmp_path / "system")

    assert (tmp_path / "system" / "bin" / "a" / "tool").stat().st_mode & 0o777 == 0o755


def test_run_and_report_are_short_for_calls():
    reply = parse_reply({"say": "x", "run": "docker ps", "report": {"summary": "s"}})

    assert reply.calls == (
        ScriptedToolCall(tool="Bash", input={"command": "docker ps"}),
        ScriptedToolCall(tool="StructuredOutput", input={"summary": "s"}),
    )


def test_after_the_rate_limit_a_tier_gets_the_rest_of_its_script():
    scenario = load_scenario("limit-reached")
    replies = scenario.replies_for(1)

    assert [bool(reply.limit) for reply in replies] == [False, True, False, False]
    assert scenario.after_limit(1).replies_for(1) == replies[2:]
    assert scenario.after_limit(2).replies_for(1) == replies
