"""REQ-5: every run carries its own cost and tokens, and nobody else's."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from escalation.agent.context import default_window
from escalation.continuity import transcripts
from sessions_app.reading.chain import chain_of

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


def test_req5_tokens_of_each_tier_are_what_the_api_served_to_it(play_drill, write_scenario):
    write_scenario("priced", SERVED)

    first, second = play_drill("priced").sessions

    assert (first.input_tokens, first.output_tokens, first.cache_read_tokens) == (3000, 30, 5)
    assert (second.input_tokens, second.output_tokens, second.cache_read_tokens) == (4000, 40, 0)


@pytest.mark.smoke
def test_req5_tier_2_cost_is_independent_of_tier_1_cost(play_drill, write_scenario):
    write_scenario("priced", SERVED)

    first, second = play_drill("priced").sessions

    assert first.cost_usd == first.reported_cost_usd > 0
    assert second.cost_usd == second.reported_cost_usd - first.cost_usd > 0


def test_req5_sum_of_the_tiers_is_what_the_cli_reports_for_the_conversation(play_drill):
    drill = play_drill("three-tiers")

    assert chain_of(drill.of_tier(1)).total_cost_usd == drill.of_tier(3).reported_cost_usd


def test_req5_resumed_session_metrics_come_from_its_own_result_line(play_drill):
    drill = play_drill("three-tiers")

    for session in drill.sessions:
        shares = session.events.get(kind="result/success").payload["model_usage_since_last_result"]
        stated = sum(
            (Decimal(json.dumps(share["costUSD"])) for share in shares.values()), Decimal(0)
        )
        assert session.cost_usd == stated.quantize(Decimal("1e-10"))


def test_req8_context_is_the_last_call_and_not_the_sum(play_drill, write_scenario):
    write_scenario("priced", SERVED)

    first, _second = play_drill("priced").sessions

    assert first.context_tokens == 2020  # the last call's input and its whole output
    assert first.context_window >= 200_000


def test_req8_the_transcript_has_the_whole_output_of_the_last_answer(play_drill, write_scenario):
    write_scenario("priced", SERVED)

    first, second = play_drill("priced").sessions

    assert (transcripts.occupancy(first), transcripts.occupancy(second)) == (2020, 4040)


def test_req8_the_default_windows_are_those_that_the_bundled_cli_reports(play_drill):
    drill = play_drill("three-tiers")

    reported = {session.model: session.context_window for session in drill.sessions}
    named = {session.model_used: session.context_window for session in drill.sessions}
    version = drill.sessions[0].cli_version
    assert len(reported) == 3
    assert {model: default_window(model, version) for model in reported} == reported
    assert {model: default_window(model, version) for model in named} == named
