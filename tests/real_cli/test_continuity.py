"""Continuity on the real CLI: where resume is impossible, a handoff takes over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from escalation.agent.process import StopAsked
from escalation.drills.drill import start_drill
from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.resume import transcripts
from escalation.run.runner import next_session, run, run_to_end
from escalation.supervisor import cycles, manual
from sessions_app.models import Cycle, Session
from tests.factories import WatchFactory
from tests.real_cli.conftest import report_call
from tests.real_cli.playing import conversation_text, last_prompt, played

DOWN = Reply(calls=(report_call(status="down", escalate="needs a restart"),))
FIXED = Reply(calls=(report_call(did="restarted web"),))


def bash(command: str) -> Reply:
    return Reply(calls=(ScriptedToolCall(tool="Bash", input={"command": command}),))


def handoff_files(state: Path) -> list[Path]:
    return [path for path in state.rglob("*") if "handoff" in path.name and path.is_file()]


def test_req7_transcript_gone_from_disk_is_restored_from_the_archive_and_resumed(
    scripted_api, watch_cycle, monkeypatch
):
    api = scripted_api(bash("echo the lamp is red"), DOWN, FIXED)
    conclude = transcripts.archive

    def archive_and_delete(session: Session) -> int:
        stored = conclude(session)
        for path in Path(session.config_dir).rglob("*.jsonl"):
            path.unlink()
        return stored

    monkeypatch.setattr(transcripts, "archive", archive_and_delete)

    cycle = watch_cycle.run()

    assert cycle.sessions.get(tier=2).continued_by == "resume"
    assert "the lamp is red" in conversation_text(api.requests[-1].body)


def test_handoff_reaches_each_tier_as_data_in_the_prompt_and_never_as_system_text(db, own_state):

    cycle = start_drill("three-tiers", force_fresh=True)
    drill = played(run_to_end(cycle, lambda line: None))

    assert drill.cycle.outcome == Cycle.Outcome.FIXED
    assert [session.continued_by for session in drill.sessions] == ["fresh", "handoff", "handoff"]
    request = drill.first_request_of_tier(3)
    assert "workers_max" in last_prompt(request)
    assert "workers_max" not in str(request["system"])
    assert handoff_files(own_state) == []


def test_turn_limit_continues_in_the_same_conversation_as_a_new_session(
    scripted_api, watch_cycle, settings
):

    tiers = settings.CLAUDEOPS_TIERS
    settings.CLAUDEOPS_TIERS = {**tiers, 1: replace(tiers[1], max_turns=1)}
    api = scripted_api(bash("echo the lamp is red"), *watch_cycle.healthy)

    cycle = watch_cycle.run()

    limited, going_on = cycle.sessions.order_by("pk")
    assert limited.status == Session.Status.FAILED
    assert going_on.purpose == Session.Purpose.CONTINUATION
    assert going_on.continued_by == "resume"
    assert "the lamp is red" in conversation_text(api.requests[-1].body)
    assert cycle.outcome == Cycle.Outcome.HEALTHY


def test_follow_up_is_answered_in_the_same_conversation_with_reading_tools_only(
    scripted_api, watch_cycle
):
    answer = Reply(say="It was red because of the fuse.")
    touch = bash("touch changed.txt")
    api = scripted_api(bash("echo the lamp is red"), *watch_cycle.healthy, touch, answer)
    cycle = watch_cycle.run()

    manual.follow_up(cycle.sessions.get(), "Why was it red?")
    run_to_end(cycle, lambda line: None)

    asked = cycle.sessions.get(purpose=Session.Purpose.FOLLOW_UP)
    assert asked.result == "It was red because of the fuse."
    assert "the lamp is red" in conversation_text(api.requests[-1].body)
    assert not (watch_cycle.workdir / "changed.txt").exists()
    cycle.refresh_from_db()
    assert (cycle.outcome, cycle.state) == (Cycle.Outcome.HEALTHY, Cycle.State.FINISHED)


def test_manual_escalation_resumes_the_conversation_at_the_next_tier(scripted_api, watch_cycle):

    api = scripted_api(bash("echo the lamp is red"), *watch_cycle.healthy, FIXED)
    cycle = watch_cycle.run()

    manual.escalate(cycle.sessions.get(), "I do not believe it")
    run_to_end(cycle, lambda line: None)

    second = cycle.sessions.get(tier=2)
    assert (second.continued_by, second.request) == ("resume", "I do not believe it")
    assert "the lamp is red" in conversation_text(api.requests[-1].body)
    cycle.refresh_from_db()
    assert cycle.outcome == Cycle.Outcome.HEALTHY


@pytest.mark.parametrize("fresh", [False, True])
def test_failed_tier_is_retried_from_the_state_of_its_parent(scripted_api, watch_cycle, fresh):

    api = scripted_api(
        *(bash("echo the lamp is red"), DOWN, Reply(error=403), FIXED), new_conversation=(FIXED,)
    )
    cycle = watch_cycle.run()
    failed = cycle.sessions.get(tier=2)

    again = manual.retry(failed, force_fresh=fresh)
    run_to_end(cycle, lambda line: None)

    again.refresh_from_db()
    assert again.parent_session_id == failed.parent_session_id
    assert again.continued_by == ("handoff" if fresh else "resume")
    assert "the lamp is red" in conversation_text(api.requests[-1].body)
    cycle.refresh_from_db()
    assert cycle.outcome == Cycle.Outcome.HEALTHY


def test_cost_of_a_stopped_session_is_the_total_in_its_transcript(scripted_api, watch_cycle):
    scripted_api(bash("sleep 30"))
    watch = WatchFactory(workdir=str(watch_cycle.workdir))
    cycle = cycles.start(watch, trigger=Cycle.Trigger.MANUAL)
    session = next_session(cycle)
    assert session is not None

    def stop_once_a_tool_runs() -> StopAsked | None:
        began = session.events.filter(kind="assistant").exists()
        return StopAsked(Session.StopCause.PERSON, "test") if began else None

    run(session, asked_to_stop=stop_once_a_tool_runs)

    assert session.status == Session.Status.INTERRUPTED
    assert session.cost_basis == Session.CostBasis.DIFFERENCE
    assert session.cost_usd == session.reported_cost_usd
    assert (session.cost_usd or 0) > 0
