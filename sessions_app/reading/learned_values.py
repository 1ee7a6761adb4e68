"""Secrets that a process has learned while it ran, for the masking.

Masking itself asks no database: it runs in the middle of a log line, and before there are models.
"""

from __future__ import annotations

from collections.abc import Iterable

_learned: dict[tuple[str, int], tuple[str, ...]] = {}


def learn(name: str, number: int, values: Iterable[str]) -> None:
    """In place of what was known under this name and number before."""
    _learned[name, number] = tuple(values)


def forget_all(name: str) -> None:
    for key in [key for key in _learned if key[0] == name]:
        _learned.pop(key, None)


def learned_values() -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for (name, _), values in list(_learned.items()) for value in values)
