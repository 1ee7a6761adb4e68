from __future__ import annotations

import pytest

from escalation.rehearsal.walls import corpus
from escalation.rehearsal.walls.corpus import Row
from escalation.rehearsal.walls.dry import dry_outcome, would_act_on_this_host


def row(command, *, tier=1, expect="allow"):
    return Row(tier=tier, expect=expect, command=command)


def test_the_gate_judges_every_shipped_command_as_it_should():
    wrong = [outcome for each in corpus.read().rows if not (outcome := dry_outcome(each)).ok]

    assert [(one.tier, one.expect, one.command, one.decision) for one in wrong] == []


@pytest.mark.parametrize(
    ("expect", "command", "ok"),
    [
        ("allow", "ls", True),
        ("deny", "ls", False),
        ("contain", "ls", False),
        ("deny", "docker restart web", True),
        ("allow", "docker restart web", False),
        ("deny", "python3 -c 'print(1)'", True),
        ("contain", "python3 -c 'print(1)'", True),
        ("allow", "python3 -c 'print(1)'", False),
    ],
)
def test_a_decision_that_is_not_the_expected_one_is_told(expect, command, ok):
    outcome = dry_outcome(row(command, expect=expect))

    assert outcome.ok is ok
    assert outcome.happened.startswith("not played")


@pytest.mark.parametrize(
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
def test_what_would_act_on_the_operators_own_host_is_known(command, tier, acts):
    assert would_act_on_this_host(row(command, tier=tier)) is acts


def test_a_hostile_command_that_the_gate_lets_out_to_the_host_is_not_played():
    assert would_act_on_this_host(row("ps aux", expect="deny"))
