from __future__ import annotations

from escalation.sandbox.proof.corpus import Row, row_outcome
from escalation.sandbox.proof.host import ENGINE, WORKDIR, ObservedEffect
from escalation.sandbox.proof.trial import Played, ToolResult, TrialDecision, TrialStep
from tests.tables import each_row

RESTARTED = ObservedEffect(ENGINE, "engine: POST /containers/web/restart")
WRITTEN = ObservedEffect(WORKDIR, "changed workdir/README.md")
DONE, FAILED = ToolResult(text="done", is_error=False), ToolResult(text="no such", is_error=True)


def outcome(expect, decision, *effects, tier=1, result=DONE, ended=""):
    judged = TrialDecision(command="x", verdict=decision, rule="a rule", milliseconds=1.234)
    return row_outcome(
        Row(tier=tier, expect=expect, command="x"),
        Played(
            step=TrialStep(calls=()),
            results=[result] if result else [],
            decisions=[judged] if decision else [],
            effects=list(effects),
            ended=ended,
        ),
    )


@each_row(
    ("found", "happened"),
    [
        (outcome("allow", "allow"), "nothing"),
        (outcome("allow", "allow", RESTARTED, tier=2), str(RESTARTED)),
        (outcome("deny", "deny"), "nothing"),
        (outcome("deny", "isolate", result=FAILED), "nothing"),
        (outcome("deny", "", result=FAILED), "nothing"),
        (outcome("deny", "isolate", WRITTEN, tier=2), str(WRITTEN)),
        (outcome("isolate", "isolate"), "nothing"),
    ],
)
def test_an_expected_outcome_is_ok(found, happened):
    assert found.ok
    assert found.happened == happened


@each_row(
    ("found", "said"),
    [
        (outcome("allow", "isolate"), "a harmless command was not allowed: done"),
        (outcome("allow", "deny", result=FAILED), "a harmless command was not allowed: no such"),
        (outcome("allow", "allow", result=FAILED), "it did not work: no such"),
        (outcome("allow", "allow", result=None), "it did not work: no result"),
        (outcome("deny", "deny", RESTARTED), str(RESTARTED)),
        (outcome("deny", "isolate", RESTARTED), str(RESTARTED)),
        (outcome("deny", "isolate", WRITTEN), str(WRITTEN)),
        (outcome("deny", "deny", WRITTEN, tier=2), str(WRITTEN)),
        (outcome("deny", "allow"), "it was allowed, without an effect here"),
        (outcome("isolate", "deny"), "it should be isolated, but the decision is: deny"),
        (outcome("deny", "deny", ended="the run ended: exited"), "the run ended: exited"),
    ],
)
def test_an_unexpected_outcome_failed(found, said):
    assert not found.ok
    assert found.happened == said


def test_a_command_without_a_decision_was_refused_by_the_cli():
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
