"""The answers that grammars give again and again."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable

from escalation.gate.understanding import LOOK, SAFE, Understanding, Word

Grammar = Callable[[tuple[Word, ...]], Understanding | None]
"""Reads one argument vector, the program's plain name first."""

SINKS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "-"})


def looks(argv: tuple[Word, ...], *doors: str) -> Understanding:
    """It only reads."""
    return Understanding(action=argv[0] or "", arguments=argv[1:], doors=frozenset(doors))


def acts(action: str, rest: tuple[Word, ...], level: int, why: str, *doors: str) -> Understanding:
    return Understanding(
        action=action, arguments=rest, level=level, doors=frozenset(doors), why=why
    )


def writes(
    action: str, rest: tuple[Word, ...], paths: Iterable[Word], *doors: str
) -> Understanding:
    """It writes or removes these paths; in a room's own /tmp that changes nothing."""
    places = tuple(path for path in paths if path not in SINKS)
    harmless = all(map(is_scratch, places))
    return Understanding(
        action=action,
        arguments=rest,
        level=LOOK if harmless else SAFE,
        doors=frozenset(doors),
        writes=places,
        why="" if harmless else "changes files",
    )


def is_scratch(path: Word) -> bool:
    """Whether a path lies in the /tmp that each room has for itself."""
    return path is not None and f"{posixpath.normpath(path)}/".startswith("/tmp/")  # noqa: S108


def reader(*doors: str) -> Grammar:
    """For a program none of whose options writes, changes or starts anything."""
    return lambda argv: looks(argv, *doors)


def readers(names: str, *doors: str) -> dict[str, Grammar]:
    return dict.fromkeys(names.split(), reader(*doors))
