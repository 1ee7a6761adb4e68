"""A drill with four tiers: the fourth is made by settings and files alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from django.conf import settings as configured
from django.test import Client
from django.urls import reverse

from claudeops.env import Environment, tiers_from
from escalation.drills import scenario
from sessions_app.history.chain import chain_of
from sessions_app.models import Cycle, Session
from tests.real_cli.playing import (
    PlayedDrill,
    conversation_text,
    last_prompt,
    tool_outputs,
)

FOURTH = {
    "CLAUDEOPS_TIER4_NAME": "disaster recovery",
    "CLAUDEOPS_TIER4_MODEL": "sonnet",
    "CLAUDEOPS_TIER4_ALLOWED_TOOLS": "Bash,Read",
    "CLAUDEOPS_TIER4_MAX_TURNS": "7",
    "CLAUDEOPS_TIER4_MAX_BUDGET_USD": "3.50",
    "CLAUDEOPS_TIER4_TIMEOUT": "5m",
}
ROLE = "**Role: Tier 4, disaster recovery.** Rebuild what cannot be mended.\n$dry_run\n"
UNFIXED = """
[[tier.3]]
say = "The configuration of the playbook itself is wrong."
[tier.3.report]
summary = "web cannot be redeployed as it is."
services = [{ name = "web", status = "down" }]
events = []
actions_taken = []
escalation = { needed = true, reason = "web must be rebuilt", services = ["web"] }

[[tier.4]]
say = "I look whether I may restart the host; I may not."
run = "systemctl stop claudeops-worker"

[[tier.4]]
say = "I rebuild web."
run = "ansible-playbook redeploy.yml"

[[tier.4]]
say = "web is rebuilt."
[tier.4.report]
summary = "web was rebuilt and answers its users."
services = [{ name = "web", status = "healthy" }]
events = []
actions_taken = [{ action = "redeployed web", service = "web", result = "succeeded" }]
escalation = { needed = false, reason = "", services = [] }
"""


@pytest.fixture
def fourth_tier(settings, tmp_path: Path) -> None:
    prompts, scenarios = tmp_path / "prompts", tmp_path / "scenarios"
    shutil.copytree(configured.CLAUDEOPS_PROMPTS_DIR, prompts)
    (prompts / "role4.md").write_text(ROLE)
    shipped = (scenario.SCENARIO_DIRECTORY / "three-tiers.toml").read_text()
    scenarios.mkdir()
    (scenarios / "four-tiers.toml").write_text(shipped[: shipped.index("[[tier.3]]")] + UNFIXED)
    settings.CLAUDEOPS_TIERS = tiers_from(Environment(FOURTH))
    settings.CLAUDEOPS_PROMPTS_DIR = prompts
    settings.CLAUDEOPS_SCENARIOS_DIR = str(scenarios)


def test_drill_escalates_to_a_fourth_tier_made_by_settings(
    fourth_tier: None,
    play_drill: Callable[[str], PlayedDrill],
    operator_client: Client,
):
    drill = play_drill("four-tiers")

    first, second, third, fourth = sessions = drill.sessions
    assert drill.cycle.outcome == Cycle.Outcome.FIXED
    assert [session.tier for session in sessions] == [1, 2, 3, 4]
    assert [session.parent_session_id for session in sessions] == [
        *(None, first.pk, second.pk, third.pk)
    ]
    assert {session.continued_by for session in sessions[1:]} == {Session.ContinuedBy.RESUME}
    assert all((session.cost_usd or Decimal(0)) > 0 for session in sessions)
    assert [member.pk for member in chain_of(first).sessions] == [one.pk for one in sessions]

    # What the settings say of the tier is what it ran with.
    request = drill.first_request_of_tier(4)
    assert fourth.argv[fourth.argv.index("--max-turns") + 1] == "7"
    assert "sonnet" in request["model"]
    assert "disaster recovery" in last_prompt(request)
    assert fourth.argv[fourth.argv.index("--tools") + 1] == "Bash,Read"
    assert "workers_max" in conversation_text(request), "the findings of Tier 1 are in it"

    # Commands that no tier may run stay denied; commands of Tier 3 are allowed.
    refused, rebuilt = tool_outputs(fourth)[-3:-1]
    assert "any tier" in refused
    assert "for no tier" not in rebuilt
    assert drill.state_of("web").startswith("Up")

    for name, key in (("session", fourth.pk), ("cycle", drill.cycle.pk)):
        page = operator_client.get(reverse(f"web:{name}", args=[key]))
        assert "Tier 4" in page.content.decode()
    listed = operator_client.get(reverse("web:sessions"), {"tier": "4"})
    assert "Tier 4: disaster recovery" in listed.content.decode()
