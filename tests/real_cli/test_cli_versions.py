"""Cost and continuity on two real versions of the CLI that report cost differently.

The older one is fetched by `make old-cli`. Where that is not possible, the recorded result lines of
its runs stand in, and the end of the test run says so.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from escalation.agent.binary import find_binary
from escalation.agent.probe import facts_in, probe
from escalation.run import prepare
from escalation.run.cost import own_cost
from sessions_app.reading.chain import chain_of
from tests.real_cli.conftest import OLD_CLI, old_cli_is_here
from tests.real_cli.test_req5_cost import SERVED

RECORDED = Path(__file__).parent / "recorded"

# The same model in two tiers: no model name can tell whose tokens are whose.
SAME_MODEL = {1: "haiku", 2: "haiku"}


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
[[aside]]
say = "The lamp is green."
usage = { input_tokens = 500, output_tokens = 5 }
"""


@pytest.fixture
def same_model(settings):
    settings.CLAUDEOPS_TIERS = {
        number: replace(tier, model=SAME_MODEL.get(number, tier.model))
        for number, tier in settings.CLAUDEOPS_TIERS.items()
    }


def test_bundled_cli_accumulates_and_states_each_runs_share(db):
    capabilities = probe(find_binary())

    assert capabilities.works
    assert capabilities.accumulates_on_resume
    assert capabilities.accumulates_on_fork
    assert capabilities.states_own_share
    assert capabilities.verdict.startswith("usable (studied)")


def test_bundled_cli_cost_is_exact_for_the_same_model_in_two_tiers(
    play_drill, write_scenario, same_model
):
    write_scenario("priced", SERVED)

    drill = play_drill("priced")

    check_exact(drill.sessions)
    assert drill.sessions[1].cost_basis == "own_share"


def test_bundled_cli_cost_is_exact_by_difference_too(
    play_drill, write_scenario, same_model, monkeypatch
):
    """As a CLI that accumulates but does not state its share would be read."""
    monkeypatch.setattr("escalation.agent.stream._stated_share", lambda result: None)
    write_scenario("priced", SERVED)

    drill = play_drill("priced")

    check_exact(drill.sessions)
    assert drill.sessions[1].cost_basis == "difference"


def test_older_cli_reports_per_run(settings, db):
    if not old_cli_is_here():
        first, resumed = recorded("fresh"), recorded("resumed")
        assert resumed["total_cost_usd"] < first["total_cost_usd"] * 1.5
        return
    settings.CLAUDEOPS_CLAUDE_BIN = str(OLD_CLI)

    capabilities = probe(find_binary())

    assert capabilities.works
    assert not capabilities.accumulates_on_resume
    assert not capabilities.accumulates_on_fork
    assert not capabilities.appended_prompt_sticks


def test_older_cli_cost_is_exact_for_the_same_model_in_two_tiers(
    settings, play_drill, write_scenario, same_model
):
    if not old_cli_is_here():
        check_recorded_own_cost()
        return
    settings.CLAUDEOPS_CLAUDE_BIN = str(OLD_CLI)
    write_scenario("priced", SERVED)

    drill = play_drill("priced")

    check_exact(drill.sessions)
    assert [session.cost_basis for session in drill.sessions] == ["per_run", "per_run"]
    assert drill.sessions[1].continued_by == "resume"


def test_cli_replaced_between_two_tiers_falls_back_to_a_handoff(
    settings, play_drill, write_scenario, monkeypatch
):
    """The other version stands in for an upgrade that happens in the middle of a cycle."""
    monkeypatch.setattr(prepare, "find_binary", upgraded_after_the_first(find_binary()))
    write_scenario("priced", SERVED)

    drill = play_drill("priced")

    assert drill.sessions[1].continued_by == "handoff"
    assert drill.sessions[1].continued_guard == "other_runtime"


@pytest.mark.parametrize("version", ["bundled", "older"])
def test_subagents_are_paid_for_by_the_run_that_started_them(
    settings, play_drill, write_scenario, version
):
    if version == "older":
        if not old_cli_is_here():
            check_recorded_own_cost()
            return
        settings.CLAUDEOPS_CLAUDE_BIN = str(OLD_CLI)
    write_scenario("delegated", DELEGATED)

    session = play_drill("delegated").sessions[0]

    assert (session.input_tokens, session.output_tokens) == (1000 + 500 + 2000, 10 + 5 + 20)
    assert session.cost_usd == session.reported_cost_usd


def upgraded_after_the_first(binary):
    asked = []

    def find():
        asked.append(1)
        return binary if len(asked) == 1 else replace(binary, version="9.9.9 (Claude Code)")

    return find


def check_exact(sessions) -> None:
    """The API served 3,000 + 30 tokens to Tier 1 and 4,000 + 40 to Tier 2, at one price."""
    first, second = sessions[:2]
    assert (first.input_tokens, first.output_tokens) == (3000, 30)
    assert (second.input_tokens, second.output_tokens) == (4000, 40)
    price = second.cost_usd / (4000 + 5 * 40)
    assert first.cost_usd == (price * (3000 + 5 * 30 + Decimal("0.1") * 5)).quantize(
        Decimal("1e-10")
    )
    assert chain_of(first).total_cost_usd == first.cost_usd + second.cost_usd


def recorded(name: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"claude-2.1.197-{name}.json").read_text())


def check_recorded_own_cost() -> None:
    facts = facts_in(json.dumps(recorded("resumed")).encode())
    cost = own_cost(
        facts,
        resumed=True,
        accumulates=lambda: False,
        baseline=lambda: Decimal(1),
        unit_price=lambda: None,
    )
    assert cost.basis == "per_run"
    assert cost.cost_usd == facts.reported_cost_usd
