"""The requirements of SPEC-0032 on the real CLI, from chains that are played once for all tests.

The marker `spec` is on one test for each of its 24 scenarios, named after requirement and scenario.
They read the page, the argument vector, the requests that the API received, and the database.

REQ-1: the session id of every run is captured and stored. REQ-2: escalation resumes the
conversation of the tier before. REQ-3: its prompt carries none of the findings. REQ-4: the runs of
a cycle are linked, both ways. REQ-5: every run carries its own cost and tokens. REQ-6: each run has
its tier's tools and sandbox. REQ-7: a resumed chain leaves no handoff. REQ-8: the context is what
the last call held.
"""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from claude_agent_sdk import project_key_for_directory

from escalation.agent.binary import find_binary
from escalation.agent.stream import default_window
from escalation.drills.scenario import Reply, ScriptedToolCall, scenario_names
from escalation.resume import transcripts
from escalation.sandbox.setup import base_python
from escalation.tiers import get_tier
from sessions_app.history.chain import chain_of
from sessions_app.models import Approval, Conversation, Cycle, Session
from sessions_app.text import duration, estimated_tokens, money
from tests.escalation.web.shown_chain import shown_chain
from tests.real_cli.conftest import report_call
from tests.real_cli.playing import (
    PlayedDrill,
    conversation_text,
    last_prompt,
    offered_tools,
    tool_outputs,
)

SERVED = """
title = "Priced"
[[tier.1]]
say = "one"
run = "true"
usage = { input_tokens = 1000, output_tokens = 10, cache_read_input_tokens = 5 }
[[tier.1]]
usage = { input_tokens = 2000, output_tokens = 20 }
[tier.1.report]
summary = "down"
services = [{ name = "web", status = "down" }]
events = []
actions_taken = []
escalation = { needed = true, reason = "restart", services = ["web"] }
[[tier.2]]
usage = { input_tokens = 4000, output_tokens = 40 }
[tier.2.report]
summary = "up"
services = [{ name = "web", status = "healthy" }]
events = []
actions_taken = [{ action = "restarted web", result = "succeeded" }]
escalation = { needed = false, reason = "", services = [] }
"""
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


@pytest.fixture(scope="module")
def all_healthy(play_once) -> PlayedDrill:
    return play_once("all-healthy")


@pytest.fixture(scope="module")
def fixed_at_tier_2(play_once) -> PlayedDrill:
    return play_once("fixed-at-tier-2")


@pytest.fixture(scope="module")
def forbidden_command(play_once) -> PlayedDrill:
    return play_once("forbidden-command")


@pytest.fixture(scope="module")
def three_tiers(play_once) -> PlayedDrill:
    return play_once("three-tiers")


@pytest.fixture(scope="module")
def priced(play_once) -> PlayedDrill:
    return play_once("priced", SERVED)


@pytest.fixture(scope="module")
def writing(play_once) -> PlayedDrill:
    return play_once("writing", WRITING)


@pytest.mark.spec
def test_req1_session_id_captured_from_successful_tier_1_invocation(all_healthy):
    session = all_healthy.of_tier(1)
    stated = session.events.get(kind="system/init").payload["session_id"]
    seen_by_api = json.loads(all_healthy.first_request_of_tier(1)["metadata"]["user_id"])
    assert session.session_id == stated == seen_by_api["session_id"]


@pytest.mark.spec
def test_req1_session_id_stored_in_database(all_healthy):
    found = Session.objects.get(session_id=all_healthy.of_tier(1).session_id)
    assert (found.tier, found.model, found.status) == (1, "haiku", Session.Status.COMPLETED)


@pytest.fixture(scope="module")
def without_ids(play_once, tmp_path_factory) -> PlayedDrill:
    """A chain of the real CLI whose output has lost every session id."""
    return play_once("fixed-at-tier-2", binary=cli_without_ids(tmp_path_factory.mktemp("cli")))


def cli_without_ids(directory: Path) -> str:
    """The real CLI in a program that removes the ids from its output.

    The sandbox shows its directory, and an interpreter that is not the one of this installation.
    """
    real, program = directory / "real", directory / "claude"
    shutil.copy(find_binary().path, real)
    program.write_text(WITHOUT_IDS.format(python=base_python(), cli=str(real)))
    program.chmod(0o755)
    return str(program)


WITHOUT_IDS = """\
#!{python} -IS
import json, subprocess, sys
child = subprocess.Popen([{cli!r}, *sys.argv[1:]], stdout=subprocess.PIPE)
for line in child.stdout:
    try:
        found = json.loads(line)
        found.pop("session_id", None)
        line = json.dumps(found).encode() + b"\\n"
    except (ValueError, AttributeError):
        pass
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
sys.exit(child.wait())
"""


@pytest.mark.spec
def test_req1_missing_session_id_triggers_fallback(without_ids):
    first, second = without_ids.sessions
    warnings = [event.payload["text"] for event in first.events.filter(kind="warning")]
    assert first.session_id == ""
    assert any(text.startswith("The CLI reported no session_id (Tier 1, ") for text in warnings)
    assert (second.continued_by, second.continued_guard) == ("handoff", "no_session_id")


@pytest.mark.spec
def test_req3_escalation_prompt_for_tier_3_references_prior_tiers(three_tiers):
    told = " ".join(last_prompt(three_tiers.first_request_of_tier(3)).split())
    assert "You now operate as Tier 3: full remediation" in told
    assert "prior investigation of Tier 1 and the safe remediation attempts of Tier 2" in told
    assert "are in this conversation above" in told


@pytest.mark.spec
def test_req4_dashboard_displays_escalation_chain(three_tiers, operator_client):
    for session in three_tiers.sessions:
        page = operator_client.get(session.get_absolute_url()).content.decode()
        shown = shown_chain(page)
        assert [step.name for step in shown.steps] == [
            f"Session #{one.pk} (Tier {one.tier})" for one in three_tiers.sessions
        ]
        for step, one in zip(shown.steps, three_tiers.sessions, strict=True):
            facts = {one.model, money(one.cost_usd), duration(one.duration_ms)}
            assert facts | {one.get_status_display()} <= step.words


@pytest.mark.spec
def test_req5_dashboard_shows_per_tier_cost_breakdown(three_tiers, operator_client):
    last = three_tiers.of_tier(3)
    shown = shown_chain(operator_client.get(last.get_absolute_url()).content.decode())
    costs = [session.cost_usd for session in three_tiers.sessions]
    assert shown.tiers == [
        *((f"Tier {tier}", "1", money(cost)) for tier, cost in enumerate(costs, start=1)),
        ("Total", "3", money(sum(costs))),
    ]


@pytest.mark.spec
def test_req7_fallback_to_handoff_when_session_id_is_missing(without_ids):
    second = without_ids.of_tier(2)
    told = last_prompt(without_ids.first_request_of_tier(2))
    assert "--resume" not in second.argv
    assert "Record of the earlier work" in told
    assert tool_outputs(without_ids.of_tier(1))[0].split()[0] in told
    assert without_ids.cycle.outcome == Cycle.Outcome.FIXED
    assert not [path for path in without_ids.state.rglob("*handoff*") if path.is_file()]


@pytest.mark.spec
def test_req7_fallback_to_handoff_when_resume_fails(scripted_api, watch_cycle, monkeypatch):
    """The transcript vanishes after the decision was made: the CLI finds no conversation."""
    api = scripted_api(bash("echo the lamp is red"), DOWN, new_conversation=(FIXED,))
    monkeypatch.setattr("escalation.run.prepare.Conversation.take", delete_transcripts_and_take)

    cycle = watch_cycle.run()

    first, refused, second = cycle.sessions.order_by("pk")
    assert (refused.status, refused.continued_by) == (Session.Status.FAILED, "resume")
    assert (second.tier, second.continued_by, second.continued_guard) == (2, "handoff", "retired")
    assert Conversation.objects.get(session_id=first.session_id).state == "retired"
    assert "the lamp is red" in last_prompt(api.requests[-1].body)
    assert cycle.outcome == Cycle.Outcome.HEALTHY


def delete_transcripts_and_take(session_id: str, session: Session) -> bool:
    if session.parent_session is not None:
        for path in Path(session.config_dir).rglob("*.jsonl"):
            path.unlink()
    return True


@pytest.mark.spec
def test_req8_context_utilization_below_threshold_proceeds_with_resume(three_tiers):
    second = three_tiers.of_tier(2)
    facts = second.continuation_facts
    used = Decimal(facts["parent"]["context_tokens"]) / facts["run"]["context_window"]
    assert Decimal(0) < used < Decimal(facts["limits"]["context_threshold"]) == Decimal("0.80")
    assert (second.continued_by, second.continued_guard) == ("resume", "")


@pytest.mark.spec
def test_req8_context_utilization_above_threshold_triggers_fallback(scripted_api, watch_cycle):
    second, told = tier_2_after(scripted_api, watch_cycle, {"input_tokens": 820_000})
    assert (second.continued_by, second.continued_guard) == ("handoff", "context_full")
    assert "context window pressure" in second.events.get(kind="fallback").payload["text"]
    assert "--resume" not in second.argv
    assert "the lamp is red" in told


@pytest.mark.spec
def test_req8_configurable_context_threshold(scripted_api, watch_cycle, settings):
    settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD = Decimal("0.70")
    usage = {"input_tokens": 690_000, "output_tokens": 15_000}
    second, told = tier_2_after(scripted_api, watch_cycle, usage)
    assert (second.continued_by, second.continued_guard) == ("handoff", "context_full")
    assert "70%" in second.events.get(kind="settings").payload["text"]
    assert "the lamp is red" in told


DOWN = Reply(calls=(report_call(status="down", escalate="needs a restart"),))
FIXED = Reply(calls=(report_call(did="restarted web"),))


def bash(command: str) -> Reply:
    return Reply(calls=(ScriptedToolCall(tool="Bash", input={"command": command}),))


def tier_2_after(scripted_api, watch_cycle, usage: dict[str, int]) -> tuple[Session, str]:
    """Tier 2 and its prompt, after a Tier 1 whose last answer used these tokens."""
    full = Reply(calls=DOWN.calls, usage=usage)
    api = scripted_api(bash("echo the lamp is red"), full, new_conversation=(FIXED,))
    cycle = watch_cycle.run()
    return cycle.sessions.get(tier=2), last_prompt(api.requests[-1].body)


def test_req1_session_id_is_stored_before_the_process_starts(play_drill, monkeypatch):
    stored_at_start = []

    def note_what_is_stored(argv, **options):
        stored_at_start.append(Session.objects.get(session_id=argv[argv.index("--session-id") + 1]))
        raise OSError("not started")

    monkeypatch.setattr("escalation.run.runner.run_process", note_what_is_stored)

    play_drill("all-healthy")

    assert stored_at_start[0].argv[1] == "-p"


def test_req1_each_tier_has_its_own_id(three_tiers):
    assert len({session.session_id for session in three_tiers.sessions}) == 3


def flag(session: Session, name: str) -> str:
    return session.argv[session.argv.index(name) + 1]


@pytest.mark.spec
def test_req2_tier_1_escalates_to_tier_2_via_resume(three_tiers):
    first, second = three_tiers.of_tier(1), three_tiers.of_tier(2)
    assert flag(second, "--resume") == first.session_id
    assert flag(second, "--model") == "sonnet"
    heard = conversation_text(three_tiers.first_request_of_tier(2))
    assert "unknown key 'workers_max'" in heard
    assert "web    Exited (78) 4 minutes ago" in heard


@pytest.mark.spec
def test_req2_tier_2_escalates_to_tier_3_via_resume(three_tiers):
    second, third = three_tiers.of_tier(2), three_tiers.of_tier(3)
    assert flag(third, "--resume") == second.session_id
    heard = conversation_text(three_tiers.first_request_of_tier(3))
    assert "web    Exited (78) 4 minutes ago" in heard
    assert "web exited again with code 78" in heard


def test_req2_each_tier_asks_its_own_model(three_tiers):
    asked = [three_tiers.first_request_of_tier(tier)["model"] for tier in (1, 2, 3)]
    assert ["haiku" in asked[0], "sonnet" in asked[1], "opus" in asked[2]] == [True] * 3
    assert [session.model_used for session in three_tiers.sessions] == asked


@pytest.mark.spec
def test_req2_resume_invocation_does_not_include_handoff_content_in_system_prompt(three_tiers):
    for tier in (2, 3):
        session = three_tiers.of_tier(tier)
        assert "--append-system-prompt" not in session.argv
        assert last_prompt(three_tiers.first_request_of_tier(tier)) == session.prompt


def test_req3_the_request_that_the_api_received_guards_against_echoing_the_earlier_report(
    three_tiers,
):
    for tier in (2, 3):
        request = three_tiers.first_request_of_tier(tier)
        *earlier, newest = [entry for entry in request["messages"] if entry["role"] != "system"]
        report = f"The closing report of Tier {tier - 1}"
        summary = three_tiers.of_tier(tier - 1).report["summary"]
        assert newest["role"] == "user"
        assert summary in json.dumps(earlier, ensure_ascii=False)
        assert summary not in json.dumps(newest, ensure_ascii=False)
        told = last_prompt({"messages": [newest]})
        assert f"{report} is complete: do not repeat or reword it." in told


def test_req3_the_system_prompt_that_the_api_received_holds_nothing_of_ours(three_tiers):
    for tier in (1, 2, 3):
        request = three_tiers.first_request_of_tier(tier)
        notes = [entry for entry in request["messages"] if entry["role"] == "system"]
        system = json.dumps([request["system"], notes], ensure_ascii=False)
        ours = [line for line in three_tiers.of_tier(tier).prompt.splitlines() if len(line) > 20]
        assert [line for line in ours if line in system] == []


@pytest.mark.spec
def test_req3_escalation_prompt_specifies_authorized_actions(three_tiers):
    for tier in (2, 3):
        told = last_prompt(three_tiers.first_request_of_tier(tier))
        assert "you are authorised to" in " ".join(told.split())
        assert "Not authorised:" in told
        assert "**Cooldown:**" in told
        assert "**Not a dry run:** changes are real." in told


def test_req2_escalation_leaves_the_conversation_of_the_earlier_tier_untouched(three_tiers):
    first = three_tiers.of_tier(1)
    folder = Path(first.config_dir) / "projects" / project_key_for_directory(first.workdir)
    transcript = (folder / f"{first.session_id}.jsonl").read_text()
    assert "docker ps" in transcript
    assert "docker restart web" not in transcript


def test_req2_outcome_and_reasons_are_stored(three_tiers):
    assert three_tiers.cycle.outcome == Cycle.Outcome.FIXED
    assert [session.status for session in three_tiers.sessions] == [
        "escalated",
        "escalated",
        "completed",
    ]
    assert three_tiers.of_tier(1).escalation_reason == (
        "Tier 1 asked for escalation: web stopped on a configuration error and needs mending (web)."
    )


@pytest.mark.spec
def test_req3_escalation_prompt_describes_tier_change_without_repeating_findings(three_tiers):
    for tier in (2, 3):
        earlier = three_tiers.of_tier(tier - 1)
        prompt = three_tiers.of_tier(tier).prompt
        for output in [*tool_outputs(earlier), earlier.report["summary"]]:
            assert output not in prompt
        assert "workers_max" not in prompt
        assert "Exited" not in prompt
        assert f"You now operate as Tier {tier}" in prompt
        assert "in this conversation above" in prompt
        assert estimated_tokens(prompt) < 500


@pytest.mark.spec
def test_req7_no_handoff_file_created_during_resume_based_escalation(three_tiers):
    assert not [path for path in three_tiers.state.rglob("*handoff*")]
    assert not any("handoff" in session.prompt.lower() for session in three_tiers.sessions)
    assert [one.continued_by for one in three_tiers.sessions] == ["fresh", "resume", "resume"]


@pytest.mark.spec
def test_req4_resumed_session_references_parent(fixed_at_tier_2):
    first, second = fixed_at_tier_2.sessions
    assert second.parent_session_id == first.pk
    assert second.session_id == second.events.get(kind="system/init").payload["session_id"]
    assert second.continued_by == Session.ContinuedBy.RESUME


@pytest.mark.spec
def test_req4_three_tier_chain_is_fully_linked(three_tiers):
    expected = [session.pk for session in three_tiers.sessions]
    for session in three_tiers.sessions:
        assert [member.pk for member in chain_of(session).sessions] == expected


def test_req5_tokens_of_each_tier_are_what_the_api_served_to_it(priced):
    first, second = priced.sessions

    assert (first.input_tokens, first.output_tokens, first.cache_read_tokens) == (3000, 30, 5)
    assert (second.input_tokens, second.output_tokens, second.cache_read_tokens) == (4000, 40, 0)


@pytest.mark.smoke
@pytest.mark.spec
def test_req5_tier_2_cost_is_independent_of_tier_1_cost(priced):
    first, second = priced.sessions

    assert first.cost_usd == first.reported_cost_usd > 0
    assert second.cost_usd == second.reported_cost_usd - first.cost_usd > 0


def test_req5_sum_of_the_tiers_is_what_the_cli_reports_for_the_conversation(three_tiers):
    assert (
        chain_of(three_tiers.of_tier(1)).total_cost_usd == three_tiers.of_tier(3).reported_cost_usd
    )


@pytest.mark.spec
def test_req5_resumed_session_metrics_come_from_cli_json_output(three_tiers):
    for session in three_tiers.sessions:
        shares = session.events.get(kind="result/success").payload["model_usage_since_last_result"]
        stated = sum(
            (Decimal(json.dumps(share["costUSD"])) for share in shares.values()), Decimal(0)
        )
        assert session.cost_usd == stated.quantize(Decimal("1e-10"))


def test_req8_context_is_the_last_call_and_not_the_sum(priced):
    first, _second = priced.sessions

    assert first.context_tokens == 2020  # the last call's input and its whole output
    assert first.context_window >= 200_000


def test_req8_the_transcript_has_the_whole_output_of_the_last_answer(priced):
    first, second = priced.sessions

    assert (transcripts.occupancy(first), transcripts.occupancy(second)) == (2020, 4040)


def test_req8_the_default_windows_are_those_that_the_bundled_cli_reports(three_tiers):
    reported = {session.model: session.context_window for session in three_tiers.sessions}
    named = {session.model_used: session.context_window for session in three_tiers.sessions}
    version = three_tiers.sessions[0].cli_version
    assert len(reported) == 3
    assert {model: default_window(model, version) for model in reported} == reported
    assert {model: default_window(model, version) for model in named} == named


@pytest.mark.spec
def test_req6_tier_2_gains_write_and_edit_tools_on_resume(writing):
    assert not {"Write", "Edit"} & offered_tools(writing.first_request_of_tier(1))
    assert {"Write", "Edit"} <= offered_tools(writing.first_request_of_tier(2))
    assert "No such tool available" in tool_outputs(writing.of_tier(1))[0]


def test_req6_file_is_written_by_tier_2_only(writing):
    assert (writing.directory / "system/note.txt").read_text() == "from tier 2"


@pytest.mark.smoke
@pytest.mark.spec
def test_req6_tier_2_disallowed_tools_replace_those_of_tier_1(forbidden_command):
    assert "denied" in tool_outputs(forbidden_command.of_tier(1))[1]
    assert tool_outputs(forbidden_command.of_tier(2))[0] == "web"
    assert forbidden_command.state_of("web").startswith("Up")


def test_req6_command_blocked_at_tier_2_does_not_run_there_and_runs_at_tier_3(three_tiers):
    assert "denied" in tool_outputs(three_tiers.of_tier(2))[1]
    assert "PLAY [redeploy web]" in tool_outputs(three_tiers.of_tier(3))[0]


@pytest.mark.spec
def test_req6_session_manager_always_passes_tier_appropriate_tool_flags(three_tiers):
    for session in three_tiers.sessions:
        tier = get_tier(session.tier)
        allowed = session.argv[session.argv.index("--allowedTools") + 1]
        blocked = session.argv[session.argv.index("--disallowedTools") + 1]
        assert allowed == ",".join(tier.allowed_tools)
        # After the tier's own come the paths that no tool may touch at any tier.
        assert blocked.startswith(",".join(tier.disallowed_tools) + ",Edit(//")


@pytest.mark.parametrize("name", [name for name in scenario_names() if "asks" not in name])
def test_a_shipped_drill_needs_no_approval(play_once, name):
    """Logs and denials of a scenario must not look like instructions."""
    play_once(name)

    assert not Approval.objects.exists()
