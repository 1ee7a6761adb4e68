"""One spelling for each service, however a report writes it.

Two services must never become one, or the health of one would hide the trouble of the other: only
case, quotes, spaces and systemd's own suffix are taken for the same.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

from sessions_app.reading.plain_text import clean

LONGEST = 200
UNNAMED = "unnamed"
BETWEEN_WORDS = re.compile(r"[\s_]+")


def one_spelling(name: str) -> str:
    """`"Web_Shop"`, `web shop` and `web-shop.service` are one."""
    text = unicodedata.normalize("NFKC", clean(name)).casefold()
    text = BETWEEN_WORDS.sub("-", text.strip(" \t\n\"'`#"))
    text = text.removesuffix(".service").strip("-#") or UNNAMED
    if len(text) <= LONGEST:
        return text
    # What was cut off still tells two apart.
    rest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    return f"{text[: LONGEST - len(rest) - 1]}-{rest}"
