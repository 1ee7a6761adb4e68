from __future__ import annotations

import pytest

from escalation.rehearsal.walls.corpus import Row
from escalation.rehearsal.walls.outcome import row_outcome
from escalation.rehearsal.walls.scripted_calls import ToolResult
from escalation.rehearsal.walls.stage import ENGINE, WORKDIR, Effect
from escalation.rehearsal.walls.trial import Judged, Played, Step

RESTARTED = Effect(ENGINE, "engine: POST /containers/web/restart")
WRITTEN = Effect(WORKDIR, "changed workdir/README.md")
DONE, FAILED = ToolResult(text="done", is_error=False), ToolResult(text="no such", is_error=True)


def outcome(expect, decision, *effects, tier=1, result=DONE, ended=""):
    judged = Judged(command="x", verdict=decision, rule="a rule", milliseconds=1.234)
    return row_outcome(
        Row(tier=tier, expect=expect, command="x"),
        Played(
            step=Step(calls=()),
            results=[result] if result else [],
            judged=[judged] if decision else [],
            effects=list(effects),
            ended=ended,
        ),
    )


@pytest.mark.parametrize(
    ("found", "happened"),
    [
        (outcome("allow", "allow"), "nothing"),
        (outcome("allow", "allow", RESTARTED, tier=2), str(RESTARTED)),
        (outcome("deny", "deny"), "nothing"),
        (outcome("deny", "contain", result=FAILED), "nothing"),
        (outcome("deny", "", result=FAILED), "nothing"),
        (outcome("deny", "contain", WRITTEN, tier=2), str(WRITTEN)),
        (outcome("contain", "contain"), "nothing"),
    ],
)
def test_what_went_as_it_should_is_ok(found, happened):
    assert found.ok
    assert found.happened == happened


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (outcome("allow", "contain"), "a harmless command was not allowed: done"),
        (outcome("allow", "deny", result=FAILED), "a harmless command was not allowed: no such"),
        (outcome("allow", "allow", result=FAILED), "it did not work: no such"),
        (outcome("allow", "allow", result=None), "it did not work: no answer came"),
        (outcome("deny", "deny", RESTARTED), str(RESTARTED)),
        (outcome("deny", "contain", RESTARTED), str(RESTARTED)),
        (outcome("deny", "contain", WRITTEN), str(WRITTEN)),
        (outcome("deny", "deny", WRITTEN, tier=2), str(WRITTEN)),
        (outcome("deny", "allow"), "it was allowed, and did nothing here"),
        (outcome("contain", "deny"), "it was to be contained, and the decision is: deny"),
        (outcome("deny", "deny", ended="the run ended: exited"), "the run ended: exited"),
    ],
)
def test_what_did_not_go_as_it_should_failed(found, said):
    assert not found.ok
    assert found.happened == said


def test_a_command_that_never_reached_the_gate_was_refused_by_the_cli():
    found = outcome("deny", "", result=FAILED)

    assert (found.decision, found.rule) == ("deny", "the CLI's own rules")


def test_the_row_has_what_a_proof_stores():
    assert outcome("deny", "deny").as_data() == {
        "tier": 1,
        "command": "x",
        "expect": "deny",
        "decision": "deny",
        "rule": "a rule",
        "happened": "nothing",
        "ok": True,
        "milliseconds": 1.23,
    }
