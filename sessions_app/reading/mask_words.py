"""What stands where a secret was."""

from __future__ import annotations

BEGINNING = "[masked: "


def mask(what: str) -> str:
    return f"{BEGINNING}{what}]"


def is_masked(value: str) -> bool:
    """A pattern that ends at a space sees the beginning of a mark alone."""
    return value.startswith(BEGINNING.rstrip())
