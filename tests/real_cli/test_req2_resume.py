"""REQ-2: escalation resumes the conversation of the tier before."""

from __future__ import annotations

import json
from pathlib import Path

from claude_agent_sdk import project_key_for_directory

from sessions_app.models import Cycle, Session
from tests.real_cli.playing import conversation_text, last_prompt, tool_outputs


def flag(session: Session, name: str) -> str:
    return session.argv[session.argv.index(name) + 1]


def test_req2_tier_1_escalates_to_tier_2_via_resume(play_drill):
    drill = play_drill("three-tiers")

    first, second = drill.of_tier(1), drill.of_tier(2)
    assert flag(second, "--resume") == first.session_id
    assert flag(second, "--model") == "sonnet"
    heard = conversation_text(drill.first_request_of_tier(2))
    assert "unknown key 'workers_max'" in heard
    assert "web    Exited (78) 4 minutes ago" in heard


def test_req2_tier_2_escalates_to_tier_3_with_both_conversations(play_drill):
    drill = play_drill("three-tiers")

    second, third = drill.of_tier(2), drill.of_tier(3)
    assert flag(third, "--resume") == second.session_id
    heard = conversation_text(drill.first_request_of_tier(3))
    assert "web    Exited (78) 4 minutes ago" in heard
    assert "web exited again with code 78" in heard


def test_req2_each_tier_asks_its_own_model(play_drill):
    drill = play_drill("three-tiers")

    asked = [drill.first_request_of_tier(tier)["model"] for tier in (1, 2, 3)]
    assert ["haiku" in asked[0], "sonnet" in asked[1], "opus" in asked[2]] == [True] * 3
    assert [session.model_used for session in drill.sessions] == asked


def test_req2_resume_invocation_has_the_prompt_as_its_sole_new_input(play_drill):
    drill = play_drill("three-tiers")

    for tier in (2, 3):
        session = drill.of_tier(tier)
        assert "--append-system-prompt" not in session.argv
        assert last_prompt(drill.first_request_of_tier(tier)) == session.prompt


def test_req3_the_request_that_the_api_received_guards_against_echoing_the_earlier_report(
    play_drill,
):
    drill = play_drill("three-tiers")

    for tier in (2, 3):
        request = drill.first_request_of_tier(tier)
        *earlier, newest = [entry for entry in request["messages"] if entry["role"] != "system"]
        report = f"The closing report of Tier {tier - 1}"
        summary = drill.of_tier(tier - 1).report["summary"]
        assert newest["role"] == "user"
        assert summary in json.dumps(earlier, ensure_ascii=False)
        assert summary not in json.dumps(newest, ensure_ascii=False)
        told = last_prompt({"messages": [newest]})
        assert f"{report} is finished business: do not repeat or reword it." in told


def test_req3_the_system_prompt_that_the_api_received_holds_nothing_of_ours(play_drill):
    drill = play_drill("three-tiers")

    for tier in (1, 2, 3):
        request = drill.first_request_of_tier(tier)
        notes = [entry for entry in request["messages"] if entry["role"] == "system"]
        system = json.dumps([request["system"], notes], ensure_ascii=False)
        ours = [line for line in drill.of_tier(tier).prompt.splitlines() if len(line) > 20]
        assert [line for line in ours if line in system] == []


def test_req3_a_tier_is_told_its_cooldown_and_that_changes_are_real(play_drill):
    drill = play_drill("three-tiers")

    for tier in (2, 3):
        told = last_prompt(drill.first_request_of_tier(tier))
        assert "**Cooldown:**" in told
        assert "**Not a dry run:** changes are real." in told


def test_req2_escalation_leaves_the_conversation_of_the_earlier_tier_untouched(play_drill):
    drill = play_drill("three-tiers")

    first = drill.of_tier(1)
    folder = Path(first.config_dir) / "projects" / project_key_for_directory(first.workdir)
    transcript = (folder / f"{first.session_id}.jsonl").read_text()
    assert "docker ps" in transcript
    assert "docker restart web" not in transcript


def test_req2_outcome_and_reasons_are_stored(play_drill):
    drill = play_drill("three-tiers")

    assert drill.cycle.outcome == Cycle.Outcome.FIXED
    assert [session.status for session in drill.sessions] == ["escalated", "escalated", "completed"]
    assert drill.of_tier(1).escalation_reason == (
        "Tier 1 asked for escalation: web stopped on a configuration error and needs mending (web)."
    )


def test_req3_escalation_prompt_contains_none_of_the_findings(play_drill):
    drill = play_drill("three-tiers")

    for tier in (2, 3):
        earlier = drill.of_tier(tier - 1)
        prompt = drill.of_tier(tier).prompt
        for output in [*tool_outputs(earlier), earlier.report["summary"]]:
            assert output not in prompt
        assert "workers_max" not in prompt
        assert "Exited" not in prompt


def test_req7_no_prompt_and_no_file_of_a_resumed_chain_is_a_handoff(play_drill, own_state):
    drill = play_drill("three-tiers")

    assert not [path for path in own_state.rglob("*handoff*")]
    assert not any("handoff" in session.prompt.lower() for session in drill.sessions)
