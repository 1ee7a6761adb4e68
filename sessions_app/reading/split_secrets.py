"""Secrets that begin at the end of one line of a stream and go on in the next.

The first half was stored when the second came. That one is hidden, so that nobody can put them
together again. Only what is known by value can be seen so: a shape needs its whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sessions_app.reading.known_values import KnownValues
from sessions_app.reading.mask_words import mask

REMEMBERED = 1_000
"""Of what was said last: longer than any secret that we know."""
# Where in a line of the stream words of the model or of a tool stand.
TEXTS = frozenset(["text", "content", "thinking", "result", "stdout", "stderr", "line"])


class SplitSecrets:
    """What each source of one run has said last."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def hidden_in(self, source: str, payload: dict[str, Any], known: KnownValues) -> dict[str, Any]:
        """The payload without the end of a secret that began in what the source said before."""
        texts = list(_texts(payload))
        if not texts:
            return payload
        before, first = self._said.get(source, ""), texts[0]
        self._said[source] = f"{before if len(texts) == 1 else ''}{texts[-1]}".rstrip()[
            -REMEMBERED:
        ]
        name, length = known.completed_by(before, first.lstrip()[:REMEMBERED])
        if not length:
            return payload
        rest = first.lstrip()[length:]
        changed: dict[str, Any] = _with_first(payload, [f"{mask(name)}{rest}"])
        return changed


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
