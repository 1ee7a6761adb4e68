"""Which models a tier may ask: its own words for a model against the id in a request."""

from __future__ import annotations

import re

# Names of the CLI that stand for other families than the one that they spell.
FAMILIES = {"opusplan": ("opus", "sonnet"), "best": ("opus",)}
KNOWN_FAMILIES = {"haiku", "sonnet", "opus"}
_NAME = re.compile(r"[\w.:@/\[\]+-]+", re.ASCII)
_LONG_CONTEXT = re.compile(r"\[1m\]$")
_DATE = re.compile(r"[-@]\d{8}$")


def may_ask(model: str, models: tuple[str, ...]) -> bool:
    """Whether one of the tier's words means this model."""
    if not _NAME.fullmatch(model):
        return model in models
    asked = _plain(model)
    return any(_means(_plain(word), asked) for word in models)


def _means(word: str, asked: str) -> bool:
    if not word:
        return False
    if word.isalpha():
        families = set(FAMILIES.get(word, (word,)))
        named = set(re.split(r"[^a-z]+", asked))
        # One that names two families is whichever its reader likes.
        return bool(named & families) and not named & KNOWN_FAMILIES - families
    return asked == word or _DATE.sub("", asked) == word


def _plain(model: str) -> str:
    return _LONG_CONTEXT.sub("", model.strip().lower())
