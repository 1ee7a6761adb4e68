"""Secrets that are known by value: hidden wherever they stand, as they are and encoded. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote, quote_plus

from sessions_app.reading.mask_words import BEGINNING, mask

SHORTEST = 6
"""A shorter value stands in too many harmless words."""
SHORTEST_ENCODED = 8
SHORTEST_IN_PIECES = 16
"""Looked for across line ends: a shorter one could come together by chance."""
LINE_END = re.compile(r"(?:\r?\n|\\n)[ \t]*")
ORDINARY_WORD = re.compile(r"[A-Za-z]{1,11}|[0-9]{1,11}")


class KnownValues:
    def __init__(self, named: Iterable[tuple[str, str]]) -> None:
        """Pairs of what a secret is called and its value."""
        self._names: dict[str, str] = {}
        for name, value in named:
            for form in _forms(value):
                self._names.setdefault(form, name)
        # The longest first: an address holds the password that is known by itself too.
        forms = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_pattern_for, forms))) if forms else None

        self._long = [form for form in forms if len(form) >= SHORTEST_IN_PIECES]

    def hidden_in(self, text: str) -> str:
        if self._pattern is None:
            return text
        if any(form in text for form in self._names):
            text = self._pattern.sub(lambda found: mask(self._names[found[0]]), text)
        return self._hidden_across_lines(text) if LINE_END.search(text) else text

    def completed_by(self, before: str, after: str) -> tuple[str, int]:
        """Whose end stands at the beginning of a text, if it began at the end of another: its name
        and how much of the text belongs to it."""
        together = before + after
        if self._pattern is None or not any(form in together for form in self._names):
            return "", 0
        for found in self._pattern.finditer(together):
            if found.start() < len(before) < found.end():
                return self._names[found[0]], found.end() - len(before)
        return "", 0

    def _hidden_across_lines(self, text: str) -> str:
        """Programs wrap what is long: base64 at 76 characters, a terminal at its edge."""
        joined = LINE_END.sub("", text)
        for form in self._long:
            if form in joined and form not in text:
                pieces = f"(?:{LINE_END.pattern})?".join(map(re.escape, form))
                text = re.sub(pieces, mask(self._names[form]), text)
        return text


@lru_cache(maxsize=8)
def known_values(named: tuple[tuple[str, str], ...]) -> KnownValues:
    return KnownValues(named)


def values_named(environment: Mapping[str, str], names: Iterable[str]) -> Iterable[tuple[str, str]]:
    return ((name, environment[name]) for name in names if environment.get(name))


def _pattern_for(form: str) -> str:
    """An ordinary word as a password is hidden as a word alone, or no text could be read."""
    if ORDINARY_WORD.fullmatch(form):
        return rf"(?<![A-Za-z0-9_]){re.escape(form)}(?![A-Za-z0-9_])"
    return re.escape(form)


def _forms(value: str) -> set[str]:
    value = value.strip()
    if len(value) < SHORTEST or BEGINNING.strip() in value:
        return set()
    plain = {
        value,
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
    }
    return plain | set(_in_base64(value.encode("utf-8", "surrogatepass")))


def _in_base64(value: bytes) -> Iterable[str]:
    """Wherever in the encoded bytes it begins: the characters that no neighbour can change."""
    for offset in range(3):
        filled = base64.b64encode(bytes(offset) + value).decode().rstrip("=")
        end = (offset + len(value)) * 8 // 6
        inner = filled[-(-offset * 8 // 6) : end]
        if len(inner) >= SHORTEST_ENCODED:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")
