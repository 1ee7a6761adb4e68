"""A table's row: a command as one would type it, and what it must be understood to be."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from escalation.command_policy.programs import understand
from escalation.command_policy.understanding import Understanding, Word


class Row(NamedTuple):
    command: str
    action: str
    level: int
    grants: str = ""
    writes: tuple[Word, ...] = ()


COMPUTED = "$computed"


def argv_of(command: str) -> tuple[Word, ...]:
    """`$computed` stands for a word that only the running shell knows."""
    return tuple(None if word == COMPUTED else word for word in shlex.split(command))


def understood(command: str) -> Understanding | None:
    return understand(argv_of(command))


def assert_is(row: Row) -> None:
    found = understood(row.command)
    assert found is not None, f"{row.command}: not understood"
    assert (found.action, found.level, found.grants, found.writes) == (
        row.action,
        row.level,
        frozenset(row.grants.split()),
        row.writes,
    ), row.command
