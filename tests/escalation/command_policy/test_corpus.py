"""The corpus of the sandbox proof: valid rows, each decided as expected.

`claudeops sandbox prove` runs its commands.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from escalation.command_policy.decision import CommandPolicy, decide
from escalation.command_policy.grants import grants_for
from escalation.command_policy.programs import GRAMMARS
from escalation.sandbox import proof
from escalation.tiers import DEFAULT_TIERS
from sessions_app.models.session import Verdict
from tests.tables import each_row

CORPUS = Path(proof.__file__).with_name("corpus.jsonl")
ROWS = [json.loads(line) for line in CORPUS.read_text().splitlines()]
HOSTILE = [row for row in ROWS if row["expect"] == "deny"]
HARMLESS = [row for row in ROWS if row["expect"] != "deny"]
# An isolated command has no grants, and the hostile rows are about grants.
PASSES = {"deny": {Verdict.DENY, Verdict.ISOLATE}, "isolate": {Verdict.ISOLATE}}
PASSES["allow"] = {Verdict.ALLOW}


def test_each_row_has_the_fields_of_a_row():
    for row in ROWS:
        assert set(row) <= {"tier", "expect", "group", "command", "why", "needs"}, row
        assert row["tier"] in (1, 2, 3), row
        assert row["expect"] in PASSES, row
        assert row["command"].strip(), row


def test_no_row_stands_there_twice():
    keys = [(row["tier"], row["command"]) for row in ROWS]

    assert len(keys) == len(set(keys))


def test_there_are_enough_of_both_kinds():
    programs = {row["command"].split()[0] for row in HOSTILE} & set(GRAMMARS)

    assert len(HOSTILE) >= 150
    assert len(HARMLESS) >= 150
    assert len(programs) >= 15


@each_row("row", [pytest.param(row, id=f"{row['tier']} {row['command'][:60]}") for row in ROWS])
def test_the_gate_judges_each_row_as_it_says(row):
    tier = DEFAULT_TIERS[row["tier"] - 1]
    policy = CommandPolicy(
        tier=tier.number,
        grants=grants_for(tier.number),
        denied=tuple(rule for rule in tier.disallowed_tools if rule.startswith("Bash(")),
        workdir="/srv/shop",
    )

    decision = decide(policy, row["command"])

    assert decision.verdict in PASSES[row["expect"]], decision
    assert decision.verdict == Verdict.ALLOW or decision.reason
