from __future__ import annotations

from escalation.sandbox.proof import corpus
from escalation.sandbox.proof.corpus import Row, dry_outcome
from tests.tables import each_row


def row(command, *, tier=1, expect="allow"):
    return Row(tier=tier, expect=expect, command=command)


def test_the_policy_decides_on_every_shipped_program_as_expected():
    wrong = [outcome for each in corpus.read().rows if not (outcome := dry_outcome(each)).ok]

    assert [(one.tier, one.expect, one.command, one.decision) for one in wrong] == []


@each_row(
    ("tier", "expect", "command", "decision", "ok"),
    [
        (1, "allow", "ssh lighthouse uptime", "allow", True),
        (1, "deny", "systemctl restart nginx", "deny", True),
        (1, "allow", "systemctl restart nginx", "deny", False),
        (2, "allow", "systemctl restart nginx", "allow", True),
        (2, "deny", "systemctl restart nginx", "allow", False),
        (1, "deny", "'ssh' lighthouse reboot", "deny", True),
    ],
)
def test_a_plain_program_with_a_grant_is_decided_on(tier, expect, command, decision, ok):
    outcome = dry_outcome(row(command, tier=tier, expect=expect))

    assert (outcome.decision, outcome.ok) == (decision, ok)
    assert outcome.happened.startswith("not played")


@each_row(
    ("command", "decision"),
    [
        *((text, "isolate") for text in ("echo x", "docker restart web", "sh -c 'ssh x reboot'")),
        *((text, "isolate") for text in ("ssh x reboot; ls", "ssh $x reboot")),
        ("curl -o README.md http://shop/", "allow"),
    ],
)
def test_a_hostile_row_without_a_change_is_left_to_its_sandbox(command, decision):
    outcome = dry_outcome(row(command, expect="deny"))

    assert (outcome.decision, outcome.happened) == (decision, "runs in the sandbox")
    assert outcome.ok
