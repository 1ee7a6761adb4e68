"""Text from outside, made safe to look at: in a terminal, in a log, on a page.

What a tool printed may hold terminal sequences (which move the cursor, name the window, answer for
the person who looks), characters that cannot be seen, halves of surrogate pairs (which no page can
be encoded with) and marks that reverse the direction of writing (which make a command look like
another one). Colours go; everything else of that kind is shown as a mark, so that nobody reads
something else than what was there.
"""

from __future__ import annotations

import json
import re
from typing import Any

DECORATION = re.compile(r"\x1b\[[0-9;:]*[mK]")
"""Colours, and clearing the rest of a line: in every log, and of no meaning here."""
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, with escape and their 8-bit twins
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # directions
    "\u00ad\u180e\u200b\u2028\u2029\u2060-\u2064\ufeff\ufff9-\ufffb"  # without width
    "\U000e0000-\U000e007f"  # tags: letters that nobody sees
    "\ud800-\udfff]"  # halves of pairs
)


def clean(text: str) -> str:
    """The same words with plain line ends, and marks for all that would act on its reader."""
    plain = DECORATION.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return UNSEEN.sub(_mark, plain)


def _mark(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the picture of the control character
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"‹U+{code:04X}›"


def json_text(value: Any, **options: Any) -> str:
    """For scripts that read a terminal's output: the true value, in characters that do nothing."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


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
