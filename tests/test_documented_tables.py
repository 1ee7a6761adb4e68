"""Tables of the handbook that repeat what the code decides contain the same."""

from __future__ import annotations

import re
from dataclasses import fields
from itertools import pairwise

import pytest
from django.conf import settings

from escalation.command_policy.grants import NAMES
from escalation.drills.scenario import DrillFile, Reply, Scenario
from escalation.incidents.findings import COULD_NOT_RUN, TITLES
from escalation.sandbox import bubblewrap
from escalation.tiers import DEFAULT_TIERS
from sessions_app.access.roles import TABLE, Right, Role
from sessions_app.credentials import LOGINS
from sessions_app.models import Watch
from sessions_app.models.autonomy import AutonomyLevel
from tests.documents import ROOT


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def rows(name: str) -> list[list[str]]:
    """The cells of every row of every table, headings left out."""
    lines = [line for line in page(name).splitlines() if line.startswith("|")]
    under_a_heading = {one for one, after in pairwise(lines) if set(after) <= set("|- ")}
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
        if line not in under_a_heading and not set(line) <= set("|- ")
    ]


def code_in(cells: list[str]) -> set[str]:
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def test_every_setting_has_a_row_and_no_other_has():
    first = " ".join(row[0] for row in rows("configuration.md"))
    named = {
        re.sub(r"\{[\d,]+\}", number, name)
        for name in re.findall(r"`([A-Z][A-Z_\d{},]+)`", first)
        for number in "".join(re.findall(r"\{([\d,]+)\}", name)).split(",")
    }
    login = {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}

    assert named - login == {variable.name for variable in settings.CLAUDEOPS_VARIABLES} - login


@pytest.mark.parametrize("tier", DEFAULT_TIERS, ids=lambda tier: tier.name)
def test_the_table_has_the_defaults_of_the_tiers(tier):
    shown = {row[0]: row[1].replace("`", "").split(", ") for row in rows("configuration.md")}
    of_tier = {name: values[tier.number - 1] for name, values in shown.items() if len(values) == 3}
    minutes = {"15m": 15, "30m": 30, "1h": 60}

    assert shown["`CLAUDEOPS_TIER{1,2,3,4}_NAME`"][tier.number - 1] == tier.name
    assert of_tier["`CLAUDEOPS_TIER{1,2,3}_MODEL`"] == tier.model
    assert int(of_tier["`CLAUDEOPS_TIER{1,2,3}_MAX_TURNS`"]) == tier.max_turns
    assert int(of_tier["`CLAUDEOPS_TIER{1,2,3}_MAX_BUDGET_USD`"]) == tier.max_budget_usd
    assert minutes[of_tier["`CLAUDEOPS_TIER{1,2,3}_TIMEOUT`"]] * 60 == tier.timeout_seconds


def test_the_table_has_the_rights_of_every_role():
    """A row names the right that it is about, or several of them."""
    table = [row for row in rows("access.md") if len(row) == 1 + len(Role)]
    given = {
        role: {
            right
            for row in table
            for right in Right
            if row[1 + column] == "yes" and re.search(rf"\b{right}\b", row[0])
        }
        for column, role in enumerate(Role)
    }

    assert given == TABLE


def test_every_credential_has_a_row():
    named = {name.removesuffix("=1") for row in rows("credentials.md") for name in code_in(row[:1])}

    assert named == set(LOGINS)


def test_every_cause_of_a_failed_session_is_explained():
    explained = {row[0] for row in rows("troubleshooting.md")}

    assert {*COULD_NOT_RUN.values(), *TITLES.values()} - explained == set()


def test_every_reason_for_a_missing_sandbox_is_explained():
    explained = {row[0] for row in rows("troubleshooting.md")}
    said = {
        bubblewrap.MISSING.partition(".")[0],
        bubblewrap.TOO_OLD.format(version="…").partition(":")[0],
        *(
            why.partition(".")[0]
            for why in (bubblewrap.NO_NAMESPACES, bubblewrap.APPARMOR, bubblewrap.CONTAINER)
        ),
        bubblewrap.SWITCHED_OFF,
    }

    assert said - explained == set()


def test_every_key_of_a_scenario_is_explained():
    explained = set().union(*(code_in(row) for row in rows("scenarios.md")))
    known = {
        *(field.name for field in (*fields(Scenario), *fields(Reply))),
        *("tier", "run", "report"),
    } - {"name", "tiers"}

    assert known - explained == set()
    assert {"path", "content", "executable = true"} <= explained
    assert {field.name for field in fields(DrillFile)} == {"path", "content", "executable"}


def test_every_grant_and_every_level_of_autonomy_has_a_row():
    grants = set().union(*(code_in(row[:1]) for row in rows("sandbox.md")))
    steps = set().union(*(code_in(row[:1]) for row in rows("policy.md")))

    assert grants == {*NAMES, "write:PATH", "read:PATH", "http:HOST"}
    assert {step.value for step in AutonomyLevel} <= steps


def test_the_page_has_the_default_cooldowns():
    watch = Watch()

    assert (watch.restarts_allowed, watch.restart_hours) == (2, 4)
    assert (watch.redeployments_allowed, watch.redeployment_hours) == (1, 24)
    assert "restarted at most twice in 4 hours and redeployed at most once in 24 hours" in page(
        "policy.md"
    )
