"""Vectors for tests, written as one would type them."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from escalation.command_policy.decision import CommandPolicy, Decision, ExecRequest, decide
from escalation.command_policy.grants import grants_for
from escalation.command_policy.programs import understand
from escalation.command_policy.understanding import NotUnderstood, Understanding

WORKDIR = "/srv/shop"


class Row(NamedTuple):
    command: str
    action: str
    level: int
    grant: str = ""


def understood(command: str, *, elsewhere: bool = False) -> Understanding:
    return understand(tuple(shlex.split(command)), elsewhere=elsewhere)


def assert_is(row: Row, *, elsewhere: bool = False) -> None:
    found = understood(row.command, elsewhere=elsewhere)
    assert (found.action, found.level, found.grant) == (row.action, row.level, row.grant)
    assert bool(found.why) == (found.level > 1)


def assert_not_understood(command: str, *, elsewhere: bool = False) -> None:
    try:
        found = understood(command, elsewhere=elsewhere)
    except NotUnderstood:
        return
    raise AssertionError(f"understood: {found}")


def policy(tier: int = 1, **changed: Any) -> CommandPolicy:
    values: dict[str, Any] = {"grants": grants_for(), "workdir": WORKDIR, **changed}
    return CommandPolicy(tier=tier, **values)


def request(command: str, cwd: str = WORKDIR, **environment: str) -> ExecRequest:
    return ExecRequest(argv=tuple(shlex.split(command)), cwd=cwd, environment=environment)


def judge(command: str, tier: int = 1, cwd: str = WORKDIR, **changed: Any) -> Decision:
    return decide(policy(tier, **changed), request(command, cwd))
