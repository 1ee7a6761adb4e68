from __future__ import annotations

from escalation.sandbox.proof import corpus
from escalation.sandbox.proof.corpus import Row, dry_outcome, would_act_on_this_host
from tests.tables import each_row


def row(command, *, tier=1, expect="allow"):
    return Row(tier=tier, expect=expect, command=command)


def test_the_policy_decides_on_every_shipped_command_as_expected():
    wrong = [outcome for each in corpus.read().rows if not (outcome := dry_outcome(each)).ok]

    assert [(one.tier, one.expect, one.command, one.decision) for one in wrong] == []


@each_row(
    ("expect", "command", "ok"),
    [
        ("allow", "ls", True),
        ("deny", "ls", False),
        ("isolate", "ls", False),
        ("deny", "docker restart web", True),
        ("allow", "docker restart web", False),
        ("deny", "python3 -c 'print(1)'", True),
        ("isolate", "python3 -c 'print(1)'", True),
        ("allow", "python3 -c 'print(1)'", False),
    ],
)
def test_an_unexpected_decision_is_reported(expect, command, ok):
    outcome = dry_outcome(row(command, expect=expect))

    assert outcome.ok is ok
    assert outcome.happened.startswith("not played")


@each_row(
    ("command", "tier", "acts"),
    [
        ("systemctl restart nginx", 2, True),
        ("sudo systemctl restart nginx", 2, True),
        ("systemctl status nginx", 2, False),
        ("ps aux", 1, False),
        ("docker restart web", 2, False),
        ("ssh lighthouse uptime", 2, False),
        ("systemctl restart nginx", 1, False),
    ],
)
def test_detects_rows_that_would_change_the_real_host(command, tier, acts):
    assert would_act_on_this_host(row(command, tier=tier)) is acts


def test_an_allowed_hostile_command_with_host_access_is_not_played():
    assert would_act_on_this_host(row("ps aux", expect="deny"))
