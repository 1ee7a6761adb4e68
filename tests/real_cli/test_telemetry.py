"""Telemetry with the real CLI: what it tells of a killed run, and the trace of a cycle."""

from __future__ import annotations

import json
import os
import signal
import time
from decimal import Decimal

import pytest

from escalation.agent.binary import find_binary
from escalation.agent.capabilities import capabilities_of
from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.run import prepare
from escalation.run.prepare import cli_spans_of
from escalation.sandbox.telemetry_receiver import read_telemetry
from escalation.worker import traces
from sessions_app.models import Session
from sessions_app.models.telemetry import trace_id
from tests.escalation.notifications.post_offices import webhook
from tests.escalation.worker.test_traces import facts, spans_in
from tests.real_cli.conftest import CLIS


@pytest.mark.prove
@pytest.mark.parametrize("version", ["2.1.197", "bundled"])
def test_the_cost_of_a_killed_run_is_what_its_telemetry_says_was_answered(
    version, settings, scripted_api, watch_cycle
):
    settings.CLAUDEOPS_CLAUDE_BIN = CLIS[version]
    usage = {"input_tokens": 4000, "output_tokens": 100, "cache_read_input_tokens": 50}
    sleep = ScriptedToolCall(tool="Bash", input={"command": "sleep 61"})
    scripted_api(
        Reply(calls=(ScriptedToolCall(tool="Bash", input={"command": "true"}),), usage=usage),
        Reply(calls=(sleep,), usage=usage),
    )

    def kill_while_it_sleeps(line: str) -> None:
        if "sleep 61" in line and not killed:
            ledger = prepare.telemetry_of(session := Session.objects.get())
            give_up = time.monotonic() + 20
            while (told := read_telemetry(ledger)) is None or told.requests < 2:
                assert time.monotonic() < give_up, told
                time.sleep(0.05)
            assert session.cli_pid is not None
            killed.append(session.cli_pid)
            os.kill(session.cli_pid, signal.SIGKILL)

    killed: list[int] = []
    watch_cycle.run(listener=kill_while_it_sleeps)

    assert killed
    session = Session.objects.earliest("pk")
    price = capabilities_of(find_binary()).price_of(session.model)
    assert price is not None
    assert (session.status, session.cost_basis) == ("interrupted", "telemetry")
    assert session.cost_usd == session.telemetry_cost_usd
    weighted = 2 * (4000 + 5 * 100 + Decimal("0.1") * 50)
    assert session.cost_usd == pytest.approx(weighted * price, abs=Decimal("1e-5"))
    assert not session.telemetry_differs


@pytest.mark.parametrize("version", [pytest.param("2.1.197", marks=pytest.mark.prove), "bundled"])
def test_the_spans_of_the_cli_are_children_of_the_span_of_its_session(
    version, settings, scripted_api, watch_cycle
):
    settings.CLAUDEOPS_CLAUDE_BIN = CLIS[version]
    command = ScriptedToolCall(tool="Bash", input={"command": "echo word-of-a-command"})
    scripted_api(Reply(calls=(command,)), *watch_cycle.healthy)
    with webhook() as collector:
        settings.OTEL_TRACES_URL = f"http://{collector.place}/v1/traces"
        watch_cycle.run(prompt="word-of-a-prompt")
        session = Session.objects.get()
        assert cli_spans_of(session).exists()
        traces.export_due()

    assert not cli_spans_of(session).exists()
    own, of_cli = collector.got
    assert facts(of_cli["resourceSpans"][0]["resource"])["service.name"] == "claude-code"
    sent = spans_in(collector)
    assert {span["traceId"] for span in sent} == {trace_id(session.cycle)}
    by_id = {span["spanId"]: span for span in sent}
    assert len(by_id) == len(sent)
    theirs = [span for span in sent if span["name"].startswith("claude_code.")]
    parents = {span["name"]: by_id[span["parentSpanId"]]["name"] for span in theirs}
    assert parents["claude_code.interaction"] == "invoke_agent Tier 1"
    assert parents["claude_code.llm_request"] == "claude_code.interaction"
    assert parents["claude_code.tool"] == "claude_code.interaction"
    asked = [facts(span) for span in theirs if span["name"] == "claude_code.llm_request"]
    tokens = sum(int(one["output_tokens"]) for one in asked)
    assert tokens == session.output_tokens > 0
    text = json.dumps(collector.got)
    assert ("word-of-a-command" in text, "word-of-a-prompt" in text) == (False, False)
    assert "user_prompt" not in text.replace("user_prompt_length", "")


def test_the_trace_of_a_chain_has_its_tiers_tokens_and_tool_calls(play_drill, settings):
    with webhook() as collector:
        settings.OTEL_TRACES_URL = f"http://{collector.place}/v1/traces"
        drill = play_drill("three-tiers")
        traces.export_due()
        sent = spans_in(collector)
        cycle, *others = [one for one in sent if not one["name"].startswith("claude_code.")]

    assert facts(cycle)["claudeops.drill"] == "three-tiers"
    agents = [span for span in others if span["parentSpanId"] == cycle["spanId"]]
    assert len(agents) == len(drill.sessions) >= 3
    for span, session in zip(agents, drill.sessions, strict=True):
        told = facts(span)
        assert told["gen_ai.conversation.id"] == session.session_id
        assert told["gen_ai.usage.output_tokens"] == str(session.output_tokens)
        assert told["claudeops.cost_usd"] == pytest.approx(float(session.cost_usd or 0))
        tools = [one for one in others if one["parentSpanId"] == span["spanId"]]
        assert tools
        for tool in tools:
            began, ended = int(tool["startTimeUnixNano"]), int(tool["endTimeUnixNano"])
            assert int(span["startTimeUnixNano"]) <= began <= ended <= int(span["endTimeUnixNano"])
            assert facts(tool)["gen_ai.tool.name"]
