"""Grammars of known programs.

A grammar gets the argument vector with the plain name of the program first, and returns what it
would do, or raises `NotUnderstood` if it cannot say.
"""

from __future__ import annotations

from escalation.command_policy.programs import (
    containers,
    databases,
    host,
    http,
    network,
    processes,
    remote,
    services,
    ssh,
)
from escalation.command_policy.programs.options import Grammar
from escalation.command_policy.understanding import Argv, NotUnderstood, Understanding

MEDIATED: dict[str, Grammar] = {
    **http.GRAMMARS,
    **network.GRAMMARS,
    **databases.GRAMMARS,
    **processes.GRAMMARS,
    **services.GRAMMARS,
    **host.ON_HOST,
    **ssh.GRAMMARS,
    "podman": containers.podman,
}
SHIMS: frozenset[str] = frozenset(MEDIATED)
"""Programs that need a grant: in the command sandbox each is a client that asks for its vector."""
GRAMMARS: dict[str, Grammar] = {
    **remote.GRAMMARS,
    **containers.GRAMMARS,
    **host.GRAMMARS,
    **MEDIATED,
}
ELSEWHERE: dict[str, Grammar] = {**ssh.ELSEWHERE, **remote.ELSEWHERE}
"""Further programs on another host or in a container."""
PASSED_VARIABLES: tuple[str, ...] = (*databases.VARIABLES, "LANG", "LC_ALL", "TZ", "COLUMNS")
"""Variables that a shim passes on; never a password, a path of programs or options."""


def understand(argv: Argv, *, elsewhere: bool = False) -> Understanding:
    """Return the meaning of a vector; raise NotUnderstood for an unknown program or use."""
    grammar = GRAMMARS.get(argv[0]) or (ELSEWHERE.get(argv[0]) if elsewhere else None)
    if grammar is None:
        raise NotUnderstood(f"the program `{argv[0]}`, which may do anything,")
    return grammar(argv)
