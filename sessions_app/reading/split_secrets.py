"""Secrets that begin at the end of one line of a stream and go on in the next.

The first half was stored when the second came. That one is hidden, so that nobody can put them
together again. Seen so is what is known by value, what has the shape of a provider's key, and the
lines of a private key. What is told by the words around it needs them in one text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessions_app.reading.key_blocks import PRIVATE_KEY, is_left_open, length_of_lines
from sessions_app.reading.known_values import KnownValues
from sessions_app.reading.mask_words import mask
from sessions_app.reading.provider_keys import completed_by

REMEMBERED = 1_000
"""Of what was said last: longer than any secret that we know."""
# Where in a line of the stream words of the model or of a tool stand.
TEXTS = frozenset(["text", "content", "thinking", "result", "stdout", "stderr", "line"])


class SplitSecrets:
    """What each source of one run has said last."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._in_key_block: set[str] = set()

    def hidden_in(self, source: str, payload: dict[str, Any], known: KnownValues) -> dict[str, Any]:
        """The payload without the end of a secret that began in what the source said before."""
        texts = list(_texts(payload))
        if not texts:
            return payload
        before, first = self._said.get(source, ""), texts[0].lstrip()
        self._said[source] = f"{before if len(texts) == 1 else ''}{texts[-1]}".rstrip()[
            -REMEMBERED:
        ]
        name, length = self._completed(source, before, first, known)
        goes_on = len(texts) == 1 and length == len(first.rstrip())
        self._note_key_block(source, texts, goes_on=goes_on)
        if not length:
            return payload
        changed: dict[str, Any] = _with_first(payload, [f"{mask(name)}{first[length:]}"])
        return changed

    def _completed(
        self, source: str, before: str, first: str, known: KnownValues
    ) -> tuple[str, int]:
        name, length = known.completed_by(before, first[:REMEMBERED])
        if not length:
            name, length = completed_by(before, first[:REMEMBERED])
        if not length and source in self._in_key_block:
            return PRIVATE_KEY, length_of_lines(first)
        return name, length

    def _note_key_block(self, source: str, texts: list[str], *, goes_on: bool) -> None:
        if is_left_open(texts[-1]) or (source in self._in_key_block and goes_on):
            self._in_key_block.add(source)
        else:
            self._in_key_block.discard(source)


def _texts(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if key in TEXTS and value.strip():
            yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)


def _with_first(value: Any, replacement: list[str], key: str = "") -> Any:
    """The same value with its first text replaced; the replacement is taken out when it is used."""
    if isinstance(value, str):
        is_text = key in TEXTS and value.strip()
        return replacement.pop() if is_text and replacement else value
    if isinstance(value, Mapping):
        return {name: _with_first(item, replacement, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_first(item, replacement, key) for item in value]
    return value
