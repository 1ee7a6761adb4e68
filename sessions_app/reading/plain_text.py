"""Text from outside, made safe to look at.

What a tool printed may hold terminal escapes, control characters, halves of surrogate pairs (which
no page can be encoded with) and marks that reverse the direction of writing (which make a command
look like another one). All of these go; the words stay.
"""

from __future__ import annotations

import json
import re
from typing import Any

TERMINAL_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_]|[ -/]+[0-~])"
)
UNSEEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """The same words with plain line ends and without anything that acts on its reader."""
    plain = TERMINAL_ESCAPES.sub("", text)
    return UNSEEN.sub("", plain.replace("\r\n", "\n").replace("\r", "\n"))


def cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def one_line(text: str, limit: int) -> str:
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def as_text(value: Any) -> str:
    """Any JSON value as words: a string as it is, nothing for null, the rest as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return clean(value)
    try:
        return clean(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return "(cannot be shown)"


def indented(value: Any) -> str:
    """JSON to be read by a person; nothing for nothing, a string as it is."""
    if isinstance(value, dict | list) and value:
        try:
            return clean(json.dumps(value, ensure_ascii=False, indent=2, default=str))
        except (TypeError, ValueError, RecursionError):
            return "(cannot be shown)"
    return as_text(value or None)
