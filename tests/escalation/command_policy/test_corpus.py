"""The corpus of the walls: sound as data, and each row judged as it says by the gate alone.

What really happens to its commands is seen by `manage.py walls`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from escalation.gate.decision import Verdict, decide
from escalation.gate.doors import doors_for
from escalation.gate.policy import GatePolicy
from escalation.gate.programs import GRAMMARS
from escalation.rehearsal import walls
from escalation.tiers import DEFAULT_TIERS

CORPUS = Path(walls.__file__).with_name("corpus.jsonl")
ROWS = [json.loads(line) for line in CORPUS.read_text().splitlines()]
HOSTILE = [row for row in ROWS if row["expect"] == "deny"]
HARMLESS = [row for row in ROWS if row["expect"] != "deny"]
# What is contained has no doors: the hostile rows are about doors.
PASSES = {"deny": {Verdict.DENY, Verdict.CONTAIN}, "contain": {Verdict.CONTAIN}}
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


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{row['tier']} {row['command'][:60]}") for row in ROWS]
)
def test_the_gate_judges_each_row_as_it_says(row):
    tier = DEFAULT_TIERS[row["tier"] - 1]
    policy = GatePolicy(
        tier=tier.number,
        doors=doors_for(tier.number),
        denied=tuple(rule for rule in tier.disallowed_tools if rule.startswith("Bash(")),
        workdir="/srv/shop",
    )

    decision = decide(policy, row["command"])

    assert decision.verdict in PASSES[row["expect"]], decision
    assert decision.verdict == Verdict.ALLOW or decision.reason
