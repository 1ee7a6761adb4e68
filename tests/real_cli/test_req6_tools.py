"""REQ-6: each run has its own tier's tools and walls, whatever the tier before had."""

from __future__ import annotations

import pytest

from escalation.tiers import get_tier
from tests.real_cli.playing import offered_tools, tool_outputs

WRITING = """
title = "Writing"
[[tier.1]]
calls = [{ tool = "Write", input = { file_path = "note.txt", content = "from tier 1" } }]
[[tier.1]]
[tier.1.report]
summary = "x"
services = []
events = []
actions_taken = []
escalation = { needed = true, reason = "write a note", services = [] }
[[tier.2]]
calls = [{ tool = "Write", input = { file_path = "note.txt", content = "from tier 2" } }]
[[tier.2]]
[tier.2.report]
summary = "x"
services = []
events = []
actions_taken = []
escalation = { needed = false, reason = "", services = [] }
"""


def test_req6_tier_2_gains_write_and_edit_tools_on_resume(play_drill, write_scenario):
    write_scenario("writing", WRITING)

    drill = play_drill("writing")

    assert not {"Write", "Edit"} & offered_tools(drill.first_request_of_tier(1))
    assert {"Write", "Edit"} <= offered_tools(drill.first_request_of_tier(2))
    assert "No such tool available" in tool_outputs(drill.of_tier(1))[0]


def test_req6_file_is_written_by_tier_2_only(play_drill, write_scenario, own_state):
    write_scenario("writing", WRITING)

    drill = play_drill("writing")

    note = own_state / f"drills/cycle-{drill.cycle.pk}/system/note.txt"
    assert note.read_text() == "from tier 2"


@pytest.mark.smoke
def test_req6_command_blocked_at_tier_1_runs_at_tier_2(play_drill):
    drill = play_drill("forbidden-command")

    assert "denied" in tool_outputs(drill.of_tier(1))[1]
    assert tool_outputs(drill.of_tier(2))[0] == "web"
    assert drill.state_of("web").startswith("Up")


def test_req6_command_blocked_at_tier_2_does_not_run_there_and_runs_at_tier_3(play_drill):
    drill = play_drill("three-tiers")

    assert "denied" in tool_outputs(drill.of_tier(2))[1]
    assert "PLAY [redeploy web]" in tool_outputs(drill.of_tier(3))[0]


def test_req6_every_run_passes_the_tool_flags_of_its_own_tier(play_drill):
    drill = play_drill("three-tiers")

    for session in drill.sessions:
        tier = get_tier(session.tier)
        allowed = session.argv[session.argv.index("--allowedTools") + 1]
        blocked = session.argv[session.argv.index("--disallowedTools") + 1]
        assert allowed == ",".join(tier.allowed_tools)
        # After the tier's own come the paths that no tool may touch at any tier.
        assert blocked.startswith(",".join(tier.disallowed_tools) + ",Edit(//")
