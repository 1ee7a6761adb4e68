"""One sentence once: what was said above is not said again below it."""

from __future__ import annotations


def unless_said(text: str, *said: str) -> str:
    """Nothing, where these words are part of what was said already."""
    words = _words(text)
    return "" if any(words in _words(other) for other in said if other) else text


def _words(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
