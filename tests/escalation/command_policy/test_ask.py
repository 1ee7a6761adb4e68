"""The verdict ask: commands that a person has to approve."""

from __future__ import annotations

from escalation.command_policy.decision import CommandPolicy, decide
from escalation.command_policy.grants import grants_for
from sessions_app.models.session import Verdict
from tests.tables import each_row

RULES = ("Bash(docker restart:*)", "Bash(git push:*)", "Bash(rm:*)")


def verdict(command: str, tier: int = 2, **policy) -> Verdict:
    rules = CommandPolicy(
        tier=tier, grants=grants_for(tier, "", ""), workdir="/srv", **{"ask": RULES, **policy}
    )
    return decide(rules, command).verdict


@each_row(
    "command",
    [
        "docker restart web",
        "docker --log-level info restart web",
        "docker container restart web",
        "cd /srv && docker restart web",
        "docker ps; docker restart web",
        "bash -c 'docker restart web'",
        "timeout 60 docker restart web",
        "docker restart $NAME",
        "git push origin main",
        "rm old.txt",
    ],
)
def test_every_spelling_of_what_the_operator_named_is_asked_for(command):
    assert verdict(command) == Verdict.ASK


@each_row(
    ("command", "expected"),
    [
        ("docker ps", Verdict.ALLOW),
        ("git status", Verdict.ALLOW),
        ("docker stop web", Verdict.ALLOW),
        ("docker system prune", Verdict.DENY),
        ("docker restart web; docker system prune", Verdict.DENY),
        ("python3 -c 'print(1)'", Verdict.ISOLATE),
        ("docker restart web; python3 x.py", Verdict.ISOLATE),
    ],
)
def test_asked_for_is_only_what_would_be_allowed(command, expected):
    assert verdict(command) == expected


def test_what_the_tier_may_not_do_is_denied_and_nobody_is_asked():
    assert verdict("docker restart web", tier=1) == Verdict.DENY
    assert verdict("docker restart web", changes_nothing=True) == Verdict.DENY


def test_without_rules_nothing_is_asked_for():
    assert verdict("docker restart web", ask=()) == Verdict.ALLOW


def test_what_is_asked_for_keeps_its_grants_and_says_by_which_rule():
    policy = CommandPolicy(tier=2, grants=grants_for(2, "", ""), workdir="/srv", ask=RULES)

    decision = decide(policy, "docker restart web")

    assert decision.grants == {"docker"}
    assert decision.actions == ("docker restart web",)
    assert decision.rule == "asked by Bash(docker restart:*)"
    assert "`docker restart web`" in decision.reason
