"""Cost and continuity on three real versions of the CLI, which report cost in different ways.

`make old-clis` fetches the older two. 2.0.77 makes many calls of its own beside the conversation,
with other models than the tier's; 2.1.197 reports per run; the bundled one counts the whole
conversation and states each run's share.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command

from escalation.agent.binary import find_binary
from escalation.drills.drill import drill_directory
from escalation.run import prepare
from sessions_app.history.chain import chain_of
from sessions_app.models import Session
from tests.real_cli.playing import PlayedDrill, conversation_text, tool_outputs
from tests.real_cli.test_requirements import SERVED

PER_RUN = "usable (studied); cost is reported per run"
OWN_SHARE = "usable (studied); cost is reported cumulative, with each run's own share"
VERDICTS = {"2.0.77": PER_RUN, "2.1.197": PER_RUN, "bundled": OWN_SHARE}
BASES = {"2.0.77": "per_run", "2.1.197": "per_run", "bundled": "own_share"}

THREE_PRICED_TIERS = """
title = "Three priced tiers"
[[tier.1]]
run = "echo the lamp is $((40 + 2)) years old"
usage = { input_tokens = 1000, output_tokens = 10, cache_read_input_tokens = 5 }
[[tier.1]]
usage = { input_tokens = 2000, output_tokens = 20 }
[tier.1.report]
summary = "down"
services = [{ name = "web", status = "down" }]
events = []
actions_taken = []
escalation = { needed = true, reason = "restart", services = ["web"] }
[[tier.1]]
say = "That is all."
usage = { input_tokens = 0, output_tokens = 0 }
[[tier.2]]
usage = { input_tokens = 4000, output_tokens = 40 }
[tier.2.report]
summary = "down"
services = [{ name = "web", status = "down" }]
events = []
actions_taken = []
escalation = { needed = true, reason = "redeploy", services = ["web"] }
[[tier.2]]
say = "That is all."
usage = { input_tokens = 0, output_tokens = 0 }
[[tier.3]]
usage = { input_tokens = 9000, output_tokens = 90 }
[tier.3.report]
summary = "up"
services = [{ name = "web", status = "healthy" }]
events = []
actions_taken = [{ action = "redeployed web", result = "succeeded" }]
escalation = { needed = false, reason = "", services = [] }
[[tier.3]]
say = "That is all."
usage = { input_tokens = 0, output_tokens = 0 }
"""

DELEGATED = """
title = "Delegated"
[[tier.1]]
usage = { input_tokens = 1000, output_tokens = 10 }
[[tier.1.calls]]
tool = "Task"
[tier.1.calls.input]
description = "look"
prompt = "Look at the lamp."
subagent_type = "general-purpose"
[[tier.1]]
usage = { input_tokens = 2000, output_tokens = 20 }
[tier.1.report]
summary = "x"
services = [{ name = "lamp", status = "healthy" }]
events = []
actions_taken = []
escalation = { needed = false, reason = "", services = [] }
[[tier.1]]
say = "That is all."
usage = { input_tokens = 0, output_tokens = 0 }
[[aside]]
say = "The lamp is green."
usage = { input_tokens = 500, output_tokens = 5 }
"""

SEARCHED = """
title = "Searched"
[[tier.1]]
calls = [{ tool = "WebSearch", input = { query = "colour of the lamp" } }]
[[tier.1]]
[tier.1.report]
summary = "x"
services = [{ name = "lamp", status = "healthy" }]
events = []
actions_taken = []
escalation = { needed = false, reason = "", services = [] }
[[aside]]
say = "The lamp is green."
"""


@pytest.fixture
def same_model(settings):
    """The same model in every tier: no model name can tell whose tokens are whose."""
    settings.CLAUDEOPS_TIERS = {
        number: replace(tier, model="haiku") for number, tier in settings.CLAUDEOPS_TIERS.items()
    }


@pytest.fixture
def chain_of_three(cli_version, play_drill, write_scenario, same_model) -> PlayedDrill:
    write_scenario("priced", THREE_PRICED_TIERS)
    return play_drill("priced")


@pytest.mark.prove
@pytest.mark.django_db
def test_doctor_reports_how_each_version_reports_cost(cli_version):
    out = io.StringIO()

    call_command("doctor", "--json", stdout=out)

    found = json.loads(out.getvalue())
    assert found["verdict"] == VERDICTS[cli_version]
    assert (found["can_fork"], found["keeps_id_on_resume"]) == (True, True)
    assert (found["refused_by_api_proxy"], found["betas_removed"]) == ([], [])
    totals = (found["accumulates_on_resume"], found["accumulates_on_fork"])
    assert totals == ((True, True) if cli_version == "bundled" else (False, False))


def test_chain_of_three_tiers_is_resumed_and_each_cost_is_exact(chain_of_three, cli_version):
    sessions = chain_of_three.sessions

    assert [(session.tier, session.continued_by) for session in sessions] == [
        (1, "fresh"),
        (2, "resume"),
        (3, "resume"),
    ]
    assert [session.cost_basis for session in sessions] == [BASES[cli_version]] * 3
    for session in sessions:
        assert tokens_of(session) == served_to(session)
        # The second count, also where the CLI reports the total of a resumed conversation.
        assert session.telemetry_cost_usd == pytest.approx(session.cost_usd, abs=Decimal("1e-6"))
        assert session.telemetry_tokens == session.total_tokens
        assert not session.telemetry_differs
    assert cost_per_weight(sessions[0]) == cost_per_weight(sessions[1])
    assert cost_per_weight(sessions[1]) == cost_per_weight(sessions[2]) > 0
    assert chain_of(sessions[0]).total_cost_usd == sum(session.cost_usd for session in sessions)
    assert "the lamp is 42 years old" in conversation_text(chain_of_three.first_request_of_tier(3))


def test_cost_is_exact_by_difference_too(play_drill, write_scenario, same_model, monkeypatch):
    """Remove the stated share, as if the CLI reported totals only."""
    monkeypatch.setattr("escalation.agent.stream._stated_share", lambda result: None)
    write_scenario("priced", THREE_PRICED_TIERS)

    sessions = play_drill("priced").sessions

    assert [session.cost_basis for session in sessions] == ["per_run", "difference", "difference"]
    assert cost_per_weight(sessions[0]) == cost_per_weight(sessions[1])
    assert cost_per_weight(sessions[1]) == cost_per_weight(sessions[2]) > 0


def test_cli_replaced_between_two_tiers_falls_back_to_a_handoff(
    settings, play_drill, write_scenario, monkeypatch
):
    """The other version stands in for an upgrade that happens in the middle of a cycle."""
    monkeypatch.setattr(prepare, "find_binary", upgraded_after_the_first(find_binary()))
    write_scenario("priced", SERVED)

    drill = play_drill("priced")

    assert drill.sessions[1].continued_by == "handoff"
    assert drill.sessions[1].continued_guard == "other_runtime"


def test_the_cost_of_subagents_belongs_to_the_session_that_started_them(
    cli_version, play_drill, write_scenario
):
    write_scenario("delegated", DELEGATED)

    session = play_drill("delegated").sessions[0]

    assert (session.input_tokens, session.output_tokens) == (1000 + 500 + 2000, 10 + 5 + 20)
    assert session.cost_usd == session.reported_cost_usd


def test_a_web_search_passes_the_api_proxy(cli_version, play_drill, write_scenario):
    """It is a request of its own with a tool that runs at the API."""
    write_scenario("searched", SEARCHED)

    session = play_drill("searched").sessions[0]

    assert session.status == Session.Status.COMPLETED
    assert any("The lamp is green." in output for output in tool_outputs(session))


def upgraded_after_the_first(binary):
    asked = []

    def find():
        asked.append(1)
        return binary if len(asked) == 1 else replace(binary, version="9.9.9 (Claude Code)")

    return find


def tokens_of(session: Session) -> dict[str, int]:
    return {
        "input_tokens": session.input_tokens,
        "output_tokens": session.output_tokens,
        "cache_read_input_tokens": session.cache_read_tokens,
        "cache_creation_input_tokens": session.cache_creation_tokens,
    }


def served_to(session: Session) -> dict[str, int]:
    """Usage of all answers to the session, from the API's log."""
    log = (drill_directory(session.cycle) / "requests.jsonl").read_text().splitlines()
    answers: list[dict[str, Any]] = [
        entry["served"]
        for entry in map(json.loads, log)
        if "served" in entry and entry["run"] == str(session.pk)
    ]
    return {name: sum(answer[name] for answer in answers) for name in tokens_of(session)}


def cost_per_weight(session: Session) -> Decimal:
    """Price of an input token, which is the same for all tiers of one model."""
    served = served_to(session)
    weight = (
        served["input_tokens"]
        + 5 * served["output_tokens"]
        + Decimal("0.1") * served["cache_read_input_tokens"]
    )
    assert session.cost_usd is not None
    return (session.cost_usd / weight).quantize(Decimal("1e-12"))
