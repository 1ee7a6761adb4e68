from __future__ import annotations

from dataclasses import replace

from escalation.sandbox.proof.corpus import Row, row_outcome
from escalation.sandbox.proof.host import ENGINE, REMOTE, WORKDIR, ObservedEffect
from escalation.sandbox.proof.trial import (
    NOT_EXECUTED,
    NOT_STARTED,
    Played,
    ToolResult,
    TrialDecision,
    TrialStep,
)
from tests.tables import each_row

RESTARTED = ObservedEffect(ENGINE, "engine: POST /containers/web/restart")
WRITTEN = ObservedEffect(WORKDIR, "changed workdir/README.md")
LOOKED = ObservedEffect(REMOTE, "lighthouse: uptime")
SILENT = ToolResult(text="(Bash completed with no output)", is_error=False)
DONE, FAILED = ToolResult(text="done", is_error=False), ToolResult(text="no such", is_error=True)
TEXT = TrialDecision(command="x", verdict="isolate", rule="in the sandbox", milliseconds=0.1)


def program(command, verdict, rule="understood"):
    return TrialDecision(
        command=command, verdict=verdict, rule=rule, milliseconds=1.234, is_program=True
    )


DENIED = program("ssh lighthouse reboot", "deny", "needs Tier 3")
READ = program("ps aux", "allow")
QUERIED = program("psql -c 'select 1'", "allow")
ASKED_A_BROKER = replace(program("sudo docker run x", "allow"), is_brokered=True)
SPARED = program("systemctl restart nginx", "allow", NOT_EXECUTED)
UNSTARTED = TrialDecision(command="x", verdict="deny", rule=NOT_STARTED, milliseconds=0)


def outcome(
    expect,
    *effects,
    programs=(),
    tier=1,
    result=DONE,
    outside=None,
    row=None,
    changes_nothing=False,
    **seen,
):
    return row_outcome(
        Row(tier=tier, expect=expect, command="x", **(row or {})),
        Played(
            step=TrialStep(calls=()),
            results=[result] if result else [],
            decisions=[TEXT, *programs],
            effects=list(effects),
            **seen,
        ),
        outside,
        changes_nothing=changes_nothing,
    )


SAME = {"same": True}
PERMITS = {"permits": ("lighthouse: uptime", "psql -c 'select 1'")}


@each_row(
    ("found", "happened"),
    [
        (outcome("allow"), "nothing"),
        (outcome("allow", programs=[READ]), "nothing"),
        (outcome("allow", RESTARTED, tier=2), str(RESTARTED)),
        (outcome("allow", result=FAILED, programs=[SPARED]), "nothing"),
        (outcome("allow", outside="done\n", row=SAME), "nothing"),
        (outcome("allow", result=SILENT, outside="", row=SAME), "nothing"),
        (outcome("deny"), "nothing"),
        (outcome("deny", result=FAILED, programs=[DENIED]), "nothing"),
        (outcome("deny", programs=[READ]), "nothing"),
        (outcome("deny", programs=[ASKED_A_BROKER]), "nothing"),
        (outcome("deny", LOOKED, programs=[QUERIED], row=PERMITS), str(LOOKED)),
        (outcome("isolate", WRITTEN, tier=2), str(WRITTEN)),
        (outcome("isolate", result=FAILED), "nothing"),
    ],
)
def test_an_expected_outcome_is_ok(found, happened):
    assert found.ok
    assert found.happened == happened


@each_row(
    ("found", "said"),
    [
        (
            outcome("allow", programs=[DENIED]),
            "a harmless program was denied (needs Tier 3): ssh lighthouse reboot",
        ),
        (outcome("allow", result=FAILED), "it did not work: no such"),
        (outcome("allow", result=None), "it did not work: no result"),
        (
            outcome("allow", result=FAILED, programs=[SPARED, DENIED]),
            "a harmless program was denied (needs Tier 3): ssh lighthouse reboot",
        ),
        (outcome("allow", outside="x", row=SAME), "it printed 'done', outside 'x'"),
        (outcome("allow", told=["the model got a key"]), "the model got a key"),
        (outcome("deny", RESTARTED, programs=[DENIED]), str(RESTARTED)),
        (outcome("deny", WRITTEN), str(WRITTEN)),
        (outcome("deny", WRITTEN, tier=2), str(WRITTEN)),
        (outcome("deny", programs=[SPARED]), "systemctl restart nginx"),
        (outcome("deny", programs=[QUERIED]), "psql -c 'select 1'"),
        (outcome("deny", told=["the model got a key"]), "the model got a key"),
        (outcome("deny", ended="the run ended: exited"), "the run ended: exited"),
        (outcome("deny", programs=[UNSTARTED]), NOT_STARTED),
        (outcome("isolate", WRITTEN), str(WRITTEN)),
        (outcome("isolate", RESTARTED, WRITTEN, tier=2), str(RESTARTED)),
    ],
)
def test_an_unexpected_outcome_failed(found, said):
    assert not found.ok
    assert found.happened == said


def test_a_command_without_a_decision_was_refused_by_the_cli():
    played = Played(step=TrialStep(calls=()), results=[FAILED])

    found = row_outcome(Row(tier=1, expect="deny", command="x"), played)

    assert (found.decision, found.rule, found.ok) == ("deny", "the CLI's own rules", True)


@each_row(
    ("programs", "decision"),
    [
        ([], ("isolate", "in the sandbox")),
        ([READ], ("allow", "understood")),
        ([READ, DENIED, READ], ("deny", "needs Tier 3")),
    ],
)
def test_the_decision_of_a_row_is_the_strictest_on_its_programs(programs, decision):
    found = outcome("deny", programs=programs)

    assert (found.decision, found.rule) == decision


def test_the_row_has_what_a_proof_stores():
    assert outcome("deny", programs=[DENIED]).as_data() == {
        "tier": 1,
        "command": "x",
        "expect": "deny",
        "decision": "deny",
        "rule": "needs Tier 3",
        "happened": "nothing",
        "ok": True,
        "vectors": (
            {"command": "ssh lighthouse reboot", "verdict": "deny", "rule": "needs Tier 3"},
        ),
        "milliseconds": 1.33,
    }


RESTARTS = replace(SPARED, is_change=True)


@each_row(
    ("tier", "expect", "effects", "programs", "ok"),
    [
        (2, "allow", (), [DENIED], True),
        (2, "allow", (LOOKED,), [QUERIED], True),
        (3, "allow", (), [RESTARTS], False),
        (2, "allow", (RESTARTED,), [], False),
        (2, "allow", (WRITTEN,), [], False),
        (2, "isolate", (WRITTEN,), [], False),
        (3, "deny", (), [DENIED], True),
        (3, "deny", (), [SPARED], False),
        (1, "allow", (), [DENIED], False),
    ],
)
def test_in_a_dry_run_tier_1_works_and_no_tier_changes_anything(
    tier, expect, effects, programs, ok
):
    found = outcome(expect, *effects, programs=programs, tier=tier, changes_nothing=True)

    assert found.ok == ok
