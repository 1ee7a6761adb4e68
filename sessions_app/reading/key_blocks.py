"""Private keys in their blocks, whole or with either end cut off. Pure, one pass."""

from __future__ import annotations

import re

from sessions_app.reading.mask_words import mask

PRIVATE_KEY = "private key"
MARK = mask(PRIVATE_KEY)
HINT = "PRIVATE "
EDGE = re.compile(
    r"-----(?P<edge>BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"|PuTTY-User-Key-File-\d|(?P<putty_end>Private-MAC: ?[0-9a-f]*)"
)
HINTS = (HINT, "PuTTY-User-Key-File-")
# What a key is written with, also where line ends are two characters; a cut key ends before others.
OF_A_KEY = re.compile(r"(?:\\[nr]|[\sA-Za-z0-9+/=:,>-])*")
_LINE_END = r"(?=[ \t\r]*(?:\n|$))"
LINES_OF_A_KEY = re.compile(
    rf"(?:[A-Za-z0-9+/=]{{16,80}}|[A-Za-z0-9+/]{{1,80}}={{1,2}}){_LINE_END}"
    rf"(?:\s+[A-Za-z0-9+/=]{{1,80}}{_LINE_END})*"
)
HEADLESS = re.compile(r"[A-Za-z0-9+/=\s\\]")


def without_key_blocks(text: str) -> str:
    if not any(hint in text for hint in HINTS):
        return text
    pieces: list[str] = []
    done, begun = 0, None
    for edge in EDGE.finditer(text):
        is_end = edge["edge"] == "END" or edge["putty_end"] is not None
        if begun is None and is_end:
            if edge["edge"]:
                pieces += [text[done : _start_of_rest(text, done, edge.start())], MARK]
                done = edge.end()
        elif begun is None:
            pieces.append(text[done : edge.start()])
            begun = edge
        elif is_end:
            pieces.append(MARK)
            done, begun = edge.end(), None
        else:
            # The one before was cut off, and this is another.
            done = _end_of_cut(text, begun.end(), edge.start())
            pieces += [MARK, text[done : edge.start()]]
            begun = edge
    if begun is not None:
        pieces.append(MARK)
        done = _end_of_cut(text, begun.end(), len(text))
    return "".join([*pieces, text[done:]])


def is_left_open(text: str) -> bool:
    """Whether a key begins in it and does not end."""
    if not any(hint in text for hint in HINTS):
        return False
    *_, last = [None, *EDGE.finditer(text)]
    return last is not None and last["edge"] != "END" and last["putty_end"] is None


def length_of_lines(text: str) -> int:
    """How much of a text's beginning are lines of a key: long ones without gaps, and its last."""
    found = LINES_OF_A_KEY.match(text)
    return len(found[0]) if found else 0


def _end_of_cut(text: str, start: int, limit: int) -> int:
    found = OF_A_KEY.match(text, start, limit)
    return start + len(found[0].rstrip()) if found else start


def _start_of_rest(text: str, lowest: int, end: int) -> int:
    """Where the lines of a key begin whose head is missing."""
    start = end
    while start > lowest and HEADLESS.match(text, start - 1):
        start -= 1
    # The first of them may be prose that only looks alike: a key's lines are long and without gaps.
    lines = text[start:end].split("\n")
    kept = 0
    while lines and (" " in lines[0].strip() or not lines[0].strip()):
        kept += len(lines.pop(0)) + 1
    return min(start + kept, end)
