"""A result without a decision of the command policy reveals a bypass of the sandbox."""

from __future__ import annotations

from typing import Any

from escalation.run.command_checks import BypassCheck


def call(command: str, number: str = "t1", tool: str = "Bash") -> dict[str, Any]:
    block = {"type": "tool_use", "id": number, "name": tool, "input": {"command": command}}
    return {"type": "assistant", "message": {"content": [block]}}


def result(output: str, number: str = "t1", *, failed: bool = False) -> dict[str, Any]:
    block = {
        "type": "tool_result",
        "tool_use_id": number,
        "content": output,
        "is_error": failed,
    }
    return {"type": "user", "message": {"content": [block]}}


def test_a_result_of_a_decided_command_is_accepted():
    commands = BypassCheck()
    commands.look_at(call("ls"))
    commands.decided("ls")

    assert commands.look_at(result("README.md")) == ""


def test_a_result_without_a_decision_is_reported():
    commands = BypassCheck()
    commands.look_at(call("docker restart web"))

    assert commands.look_at(result("web")) == "docker restart web"


def test_one_decision_covers_one_result():
    commands = BypassCheck()
    commands.look_at(call("ls", "t1"))
    commands.look_at(call("ls", "t2"))
    commands.decided("ls")

    assert commands.look_at(result("README.md", "t1")) == ""
    assert commands.look_at(result("README.md", "t2")) == "ls"


def test_a_failed_command_needs_a_decision_too():
    commands = BypassCheck()
    commands.look_at(call("false"))

    assert commands.look_at(result("Exit code 1", failed=True)) == "false"


def test_a_command_killed_by_a_stop_before_it_asked_needs_no_decision():
    commands = BypassCheck()
    commands.look_at(call("sleep 30"))
    commands.note_stop()

    assert commands.look_at(result("Exit code 137", failed=True)) == ""


def test_a_killed_command_needs_a_decision_without_a_stop_or_with_output():
    commands = BypassCheck()
    commands.look_at(call("sleep 30", "t1"))
    commands.look_at(call("sleep 31", "t2"))

    assert commands.look_at(result("Exit code 137", "t1", failed=True)) == "sleep 30"
    commands.note_stop()
    assert commands.look_at(result("Exit code 137\nweb", "t2", failed=True)) == "sleep 31"


def test_call_refused_by_the_cli_needs_no_decision():
    commands = BypassCheck()
    commands.look_at(call("helm list"))

    refused = result("Permission to use Bash with command helm list has been denied.", failed=True)

    assert commands.look_at(refused) == ""


def test_other_tools_need_no_decision():
    commands = BypassCheck()
    commands.look_at(call("whatever", tool="Read"))

    assert commands.look_at(result("text")) == ""


def test_calls_of_a_subagent_need_decisions_too():
    commands = BypassCheck()
    commands.look_at({**call("ls"), "parent_tool_use_id": "toolu_1"})

    assert commands.look_at({**result("x"), "parent_tool_use_id": "toolu_1"}) == "ls"


def test_white_space_is_ignored():
    commands = BypassCheck()
    commands.look_at(call("  ls   -l \n"))
    commands.decided("ls -l")

    assert commands.look_at(result("README.md")) == ""


def test_lines_of_any_shape_are_accepted():
    commands = BypassCheck()

    for line in ({}, {"type": "user"}, {"type": "assistant", "message": 3}, result("x", "other")):
        assert commands.look_at(line) == ""
