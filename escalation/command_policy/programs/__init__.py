"""Grammars of known programs.

A grammar gets the argument vector with the plain name of the program first, and returns what it
would do, or None if it cannot say: such a command runs in a sandbox without grants.
"""

from __future__ import annotations

from escalation.command_policy.programs import (
    archives,
    builtins,
    databases,
    deployment,
    docker,
    fetching,
    filters,
    git,
    github,
    kubernetes,
    network,
    packages,
    readers,
    ssh,
    system,
    systemd,
    wrappers,
    writers,
)
from escalation.command_policy.programs.options import Grammar
from escalation.command_policy.understanding import Understanding, Word

MOST_CHARACTERS = 100_000
"""Limit for all words together, so that reading does not take long."""

GRAMMARS: dict[str, Grammar] = {
    **archives.GRAMMARS,
    **builtins.GRAMMARS,
    **databases.GRAMMARS,
    **deployment.GRAMMARS,
    **docker.GRAMMARS,
    **fetching.GRAMMARS,
    **filters.GRAMMARS,
    **git.GRAMMARS,
    **github.GRAMMARS,
    **kubernetes.GRAMMARS,
    **network.GRAMMARS,
    **packages.GRAMMARS,
    **readers.GRAMMARS,
    **ssh.GRAMMARS,
    **system.GRAMMARS,
    **systemd.GRAMMARS,
    **writers.GRAMMARS,
    **wrappers.GRAMMARS,
}


def understand(argv: tuple[Word, ...]) -> Understanding | None:
    """Return the meaning of a command; None for an unknown program or use."""
    if sum(map(len, filter(None, argv))) > MOST_CHARACTERS:
        return None
    grammar = GRAMMARS.get(argv[0]) if argv and argv[0] else None
    return grammar(argv) if grammar else None
