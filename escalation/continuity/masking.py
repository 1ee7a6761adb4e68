"""Hiding what looks like a secret before text leaves the place where it was seen."""

from __future__ import annotations

import re
from typing import Any

MASK = "‹masked›"

PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        r"\bsk-[a-z0-9_-]{8,}",
        r"\b(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abpr])[-_][a-z0-9_-]{8,}",
        r"\bAKIA[0-9A-Z]{16}\b",
        r"\beyJ[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}\.[a-z0-9_-]*",
    )
)
# The name stays readable, the value goes: password=…, "token": "…", Authorization: Bearer …
NAMED = re.compile(
    r"""((?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)
        [\w-]{0,40}["']?\s{0,9}[:=]\s{0,9}["']?|authorization["']?\s{0,9}[:=]\s{0,9}["']?(?:basic|bearer)?\s{0,9})
        ([^\s"',;&]{3,})""",
    re.IGNORECASE | re.VERBOSE,
)
IN_ADDRESS = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s:/@]{1,200}:)[^\s@/]{1,200}(@)", re.IGNORECASE
)


def masked(text: str) -> str:
    for pattern in PATTERNS:
        text = pattern.sub(MASK, text)
    text = IN_ADDRESS.sub(rf"\1{MASK}\2", text)
    return NAMED.sub(rf"\1{MASK}", text)


def masked_data(value: Any) -> Any:
    """The same JSON value with every text in it masked."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, list):
        return [masked_data(item) for item in value]
    if isinstance(value, dict):
        return {key: masked_data(item) for key, item in value.items()}
    return value
