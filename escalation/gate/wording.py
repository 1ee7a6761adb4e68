"""A command's words for a person or a model to read."""

from __future__ import annotations

from escalation.gate.understanding import Word


def plainly(words: tuple[Word, ...]) -> str:
    text = " ".join("…" if word is None else word for word in words)
    return "".join(character if character.isprintable() else " " for character in text)


def in_short(words: tuple[Word, ...]) -> str:
    """In plain form, short enough for a sentence."""
    plain = plainly(words)
    return plain if len(plain) <= 120 else f"{plain[:117]}…"
