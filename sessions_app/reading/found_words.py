"""Where the words that somebody searched for stand, to be shown with the match marked. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sessions_app.reading.plain_text import clean

AROUND = 70
"""Characters on either side of a match."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundWords:
    where: str
    before: str
    match: str
    after: str


def found_words(words: str, texts: Mapping[str, str]) -> FoundWords | None:
    """The first of the texts that holds the words, whatever their case; None where none does."""
    wanted = re.compile(re.escape(clean(words.strip())), re.IGNORECASE)
    for where, text in texts.items():
        plain = " ".join(clean(text).split())
        found = wanted.search(plain) if words.strip() else None
        if found:
            return _shown(where, plain, found)
    return None


def _shown(where: str, text: str, found: re.Match[str]) -> FoundWords:
    begin, end = max(0, found.start() - AROUND), found.end() + AROUND
    return FoundWords(
        where=where,
        before=("…" if begin else "") + text[begin : found.start()],
        match=found[0],
        after=text[found.end() : end] + ("…" if end < len(text) else ""),
    )
