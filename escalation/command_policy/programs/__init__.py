"""What programs do with their words: one grammar for each program that is known.

A grammar is given the argument vector with the program's plain name first, and answers with what
would be done, or with None where it cannot say. It errs on the side of None: such a command runs in
a room without doors, where it can do no harm.
"""

from __future__ import annotations

from escalation.gate.programs import (
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
from escalation.gate.programs.answers import Grammar
from escalation.gate.understanding import Understanding, Word

MOST_CHARACTERS = 100_000
"""Of all words together: nobody types more, and reading it must not take long."""

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
    # The last word: what is in a wrapper is read by whoever knows its own words.
    **wrappers.GRAMMARS,
}


def understand(argv: tuple[Word, ...]) -> Understanding | None:
    """None for a program that is not known, or that is used in a way that is not."""
    if sum(map(len, filter(None, argv))) > MOST_CHARACTERS:
        return None
    grammar = GRAMMARS.get(argv[0]) if argv and argv[0] else None
    return grammar(argv) if grammar else None
