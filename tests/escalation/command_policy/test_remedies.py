"""Decisions on calls of remedies: exactly what the operator declared runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from escalation.command_policy.decision import Decision, ExecRequest, decide, judged
from escalation.command_policy.grants import grants_for
from escalation.command_policy.remedies import DeclaredRemedy
from escalation.command_policy.understanding import EVERYTHING
from sessions_app.models.remedy import Parameter
from sessions_app.models.session import Verdict
from tests.escalation.command_policy.vectors import WORKDIR, policy
from tests.tables import each_row

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
RESTART = DeclaredRemedy(
    name="restart",
    description="Restarts a container.",
    command=("docker", "restart", "{service}"),
    parameters=(Parameter(name="service"),),
    kind="restart",
    tier=2,
    grants=frozenset({"docker"}),
    seconds=30,
    services=("web", "db"),
    stamp="7 now",
)
STATUS = DeclaredRemedy(
    name="status",
    description="Shows the shop.",
    command=("shopctl", "status", "--lines={lines}"),
    parameters=(Parameter(name="lines", least=1, most=500),),
    kind="look",
    tier=1,
)
PURGE = DeclaredRemedy(
    name="purge",
    description="Clears the cache.",
    command=("/opt/purge.sh",),
    kind="other",
    tier=2,
    grants=frozenset({"host"}),
    script=b"#!/bin/sh\n",
)
DEPLOY = DeclaredRemedy(
    name="deploy", description="Deploys.", command=("shopctl", "deploy"), kind="redeploy", tier=3
)
REMEDIES = (RESTART, STATUS, PURGE, DEPLOY)


def call(*words: str, tier: int = 2, **changed: Any) -> Decision:
    own = policy(tier, **{"remedies": REMEDIES, **changed})
    return decide(own, ExecRequest(argv=("remedy", *words), cwd=WORKDIR))


def test_a_declared_call_runs_exactly_the_declared_vector():
    found = call("restart", "web")

    assert (found.verdict, found.rule) == (ALLOW, "understood")
    assert found.remedy is not None
    assert found.remedy.argv == ("docker", "restart", "web")
    assert (found.remedy.grants, found.remedy.seconds) == (frozenset({"docker"}), 30)
    assert [(one.kind, one.service, one.action) for one in found.effects] == [
        ("restart", "web", "remedy restart web")
    ]
    assert found.changes == ("remedy restart web",)


def test_a_number_is_passed_in_its_plain_form():
    found = call("status", "007", tier=1)

    assert found.remedy is not None
    assert found.remedy.argv == ("shopctl", "status", "--lines=7")
    assert (found.changes, found.effects) == ((), ())


@each_row(
    ("words", "rule"),
    [
        (("reboot",), "no such remedy"),
        (("Restart", "web"), "no such remedy"),
        (("--help",), "no such remedy"),
        (("",), "no such remedy"),
        (("restart",), "wrong parameters"),
        (("restart", "web", "db"), "wrong parameters"),
        (("restart", "cache"), "wrong parameters"),
        (("restart", "; rm -rf /"), "wrong parameters"),
        (("restart", "web\nrm"), "wrong parameters"),
        (("restart", "-f"), "wrong parameters"),
        (("restart", "$(id)"), "wrong parameters"),
        (("restart", "web\0"), "no command"),
        (("status", "501"), "wrong parameters"),
        (("status", "all"), "wrong parameters"),
        (("purge", "now"), "wrong parameters"),
        (("deploy",), "needs Tier 3"),
    ],
)
def test_other_calls_are_denied(words, rule):
    found = call(*words)

    assert (found.verdict, found.rule, found.remedy) == (DENY, rule, None)


def test_the_reason_lists_what_the_tier_may_call():
    assert "restart SERVICE, status 1..500, purge." in call("reboot").reason
    assert "status 1..500." in call("reboot", tier=1).reason


@each_row(
    ("name", "words", "lowest"),
    [
        ("status", ("status", "5"), 1),
        ("restart", ("restart", "web"), 2),
        ("purge", ("purge",), 2),
        ("deploy", ("deploy",), 3),
    ],
)
def test_each_remedy_has_a_lowest_tier(name, words, lowest):
    allowed = [tier for tier in (1, 2, 3) if call(*words, tier=tier).verdict is ALLOW]

    assert allowed == list(range(lowest, 4))


def test_a_denied_call_names_the_tier_that_may_run_it():
    policies = [policy(tier, remedies=REMEDIES) for tier in (1, 2, 3)]
    request = ExecRequest(argv=("remedy", "restart", "web"), cwd=WORKDIR)

    assert judged(policies[0], policies[1:], request).allowed_from == 2


def test_a_dry_run_says_what_would_have_run():
    found = call("restart", "web", changes_nothing=True)

    assert (found.verdict, found.rule) == (DENY, "needs Tier 2")
    assert "runs `docker restart web`" in found.reason
    assert call("status", "5", changes_nothing=True).verdict is ALLOW


@each_row(
    ("changed", "verdict", "rule"),
    [
        ({"ask": ("Bash(remedy restart:*)",)}, ASK, "asked by Bash(remedy restart:*)"),
        ({"ask": ("Bash(remedy restart db:*)",)}, ALLOW, "understood"),
        ({"ask": ("Bash(docker restart:*)",)}, ALLOW, "understood"),
        ({"denied": ("Bash(remedy restart web)",)}, DENY, "denied by Bash(remedy restart web)"),
        ({"allowed": ("Bash(docker ps:*)",)}, DENY, "not among the allowed commands"),
        ({"grants": grants_for("-docker")}, DENY, "grant docker is missing"),
    ],
)
def test_rules_and_grants_of_the_operator_hold(changed, verdict, rule):
    found = call("restart", "web", **changed)

    assert (found.verdict, found.rule) == (verdict, rule)
    assert (found.remedy is None) is (verdict is DENY)


def test_a_remedy_that_waits_does_not_run_and_is_not_listed():
    waiting = (replace(PURGE, waits="/opt/purge.sh was changed"), STATUS)

    assert call("purge", remedies=waiting).rule == "waits for a person"
    assert "purge" not in call(remedies=waiting).prints


def test_the_list_has_the_remedies_of_the_tier():
    lines = {tier: call(tier=tier).prints.splitlines()[1:] for tier in (1, 3)}

    assert lines[1] == ["  status 1..500: Shows the shop."]
    assert [line.split(":")[0].split()[0] for line in lines[3]] == [
        *("restart", "status", "purge", "deploy"),
    ]
    assert call(remedies=()).verdict is ALLOW


def test_a_restart_without_a_service_counts_for_everything():
    remedy = replace(RESTART, parameters=(), command=("shopctl", "restart"))
    named = replace(remedy, service="web")

    assert [one.service for one in call("restart", remedies=(remedy,)).effects] == [EVERYTHING]
    assert [one.service for one in call("restart", remedies=(named,)).effects] == ["web"]


@each_row("command", ["sudo remedy restart web", "ssh nas remedy restart web"])
def test_a_remedy_behind_another_program_is_not_understood(command):
    own = policy(3, remedies=REMEDIES)

    found = decide(own, ExecRequest(argv=tuple(command.split()), cwd=WORKDIR))

    assert (found.verdict, found.rule) == (DENY, "not understood")
