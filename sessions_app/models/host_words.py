"""The words by which hosts are named and chosen: of a host its labels, of a watch where it runs."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST_WORDS = 80
"""All words of a watch together: they are part of a queue's name, which is short."""
ALLOWED = re.compile(r"[a-z0-9_][a-z0-9._-]*")


def read_host_words(text: str) -> tuple[str, ...]:
    """Lower case, each once, in order. Raise ValueError, with a sentence, for what is no label."""
    words = sorted({word.lower() for word in re.split(r"[,\s]+", text) if word})
    for word in words:
        if not ALLOWED.fullmatch(word):
            raise ValueError(
                f"{word!r} is no label of a host: letters, digits, dots and dashes, like nas-2"
            )
    if len(" ".join(words)) > LONGEST_WORDS:
        raise ValueError(f"the labels have more than {LONGEST_WORDS} characters together")
    return tuple(words)


def may_run(words: Iterable[str], labels: Iterable[str]) -> bool:
    """Whether a host with these labels may run what is bound to these words."""
    wanted = set(words)
    return not wanted or not wanted.isdisjoint(labels)
