"""The corpus of the sandbox proof has valid rows. `claudeops sandbox prove` runs its commands."""

from __future__ import annotations

import json
from pathlib import Path

from escalation.command_policy.programs import GRAMMARS
from escalation.sandbox import proof

CORPUS = Path(proof.__file__).with_name("corpus.jsonl")
ROWS = [json.loads(line) for line in CORPUS.read_text().splitlines()]
HOSTILE = [row for row in ROWS if row["expect"] == "deny"]
HARMLESS = [row for row in ROWS if row["expect"] != "deny"]


FIELDS = {"tier", "expect", "group", "command", "why", "needs", "permits", "same"}


def test_each_row_has_the_fields_of_a_row():
    for row in ROWS:
        assert set(row) <= FIELDS, row
        assert row["tier"] in (1, 2, 3), row
        assert row["expect"] in ("allow", "isolate", "deny"), row
        assert row["command"].strip(), row


def test_no_row_stands_there_twice():
    keys = [(row["tier"], row["command"]) for row in ROWS]

    assert len(keys) == len(set(keys))


def test_there_are_enough_of_both_kinds():
    programs = {row["command"].split()[0] for row in HOSTILE} & set(GRAMMARS)

    assert len(HOSTILE) >= 150
    assert len(HARMLESS) >= 150
    assert len(programs) >= 15
