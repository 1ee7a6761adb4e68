"""Text for terminals, logs and pages: safe display, numbers, Markdown and search excerpts.

Output of tools may contain terminal sequences, invisible characters, unpaired surrogates, and marks
that reverse the direction of writing and so make a command look like another one. `clean` removes
colours and replaces the rest by visible marks.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any

from django.utils.safestring import SafeString

from sessions_app.redaction.redact import redacted

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

DECORATION = re.compile(r"\x1b\[[0-9;:]*[mK]")
"""Colours, and clearing the rest of a line."""
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, with escape and their 8-bit twins
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # directions
    "\u00ad\u180e\u200b\u2028\u2029\u2060-\u2064\ufeff\ufff9-\ufffb"  # without width
    "\U000e0000-\U000e007f"  # tags: letters that nobody sees
    "\ud800-\udfff]"  # halves of pairs
)


def clean(text: str) -> str:
    """Normalise line ends, remove colours, and replace invisible characters by marks."""
    plain = DECORATION.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return UNSEEN.sub(_mark, plain)


def _mark(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)  # the symbol of the control character
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"‹U+{code:04X}›"


def json_text(value: Any, **options: Any) -> str:
    """Encode a value as JSON, with invisible characters escaped."""
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
    """Return a string cleaned, an empty string for None, and JSON for other values."""
    if value is None:
        return ""
    if isinstance(value, str):
        return clean(value)
    try:
        return clean(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return "(cannot be shown)"


def indented(value: Any) -> str:
    """Return indented JSON, or a cleaned string."""
    if isinstance(value, dict | list) and value:
        try:
            return clean(json.dumps(value, ensure_ascii=False, indent=2, default=str))
        except (TypeError, ValueError, RecursionError):
            return "(cannot be shown)"
    return as_text(value or None)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is, and an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


# Numbers. All amounts in dollars are formatted here, by one rule (`rounded`): in cents, and
# below one cent in hundredths of a cent. `exact_money` keeps every digit.

CENT = Decimal("0.01")
HUNDREDTH_OF_CENT = Decimal("0.0001")
UNITS_OF_TIME = ((86_400, "d"), (3_600, "h"), (60, "min"))


def rounded(amount: Decimal | float | None) -> Decimal | None:
    """Round an amount for display; None if it is unknown."""
    dollars = None if amount is None else Decimal(str(amount))
    if dollars is None or not dollars.is_finite():
        return None
    return dollars.quantize(CENT if abs(dollars) >= CENT else HUNDREDTH_OF_CENT)


def money(amount: Decimal | float | None) -> str:
    dollars = rounded(amount)
    if amount is None or dollars is None:
        return "unknown"
    if 0 < amount < HUNDREDTH_OF_CENT:
        return "<$0.0001"
    whole, _, decimals = f"{dollars:,f}".partition(".")
    return f"${whole}.{decimals[:2]}{decimals[2:].rstrip('0')}"


def exact_money(amount: Decimal | float | None) -> str:
    """Format an amount with all digits, for figures that are compared."""
    if amount is None:
        return "unknown"
    whole, _, decimals = f"{Decimal(str(amount)):,f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"


def estimate(amount: Decimal) -> str:
    """Format an estimated amount."""
    return f"≈ {money(amount)} (estimate)"


def cost(amount: Decimal | None, estimated: Decimal | None) -> str:
    """Format the cost of a session, or its estimate."""
    return estimate(estimated) if amount is None and estimated is not None else money(amount)


def exact_percent(share: Decimal | float) -> str:
    """Format a share with all digits: 0.035 is 3.5%, and 0.80 is 80%."""
    return f"{(Decimal(str(share)) * 100).normalize():f}%"


def duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    seconds = max(milliseconds, 0) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def clock(seconds: int) -> str:
    """Format a running time in whole seconds, as `chain.js` does."""
    return duration(seconds * 1000) if seconds >= 10 else f"{seconds} s"


def tokens(count: int | None) -> str:
    if count is None:
        return "–"
    if count < 1_000:
        return str(count)
    if count < 999_500:
        return f"{count / 1_000:.{1 if count < 99_950 else 0}f}k"
    return f"{count / 1_000_000:.2f}M"


def ago(moment: datetime | None, now: datetime) -> str:
    """Format the time since a moment in the largest unit that fits."""
    if moment is None:
        return "never"
    seconds = int((now - moment).total_seconds())
    for length, unit in UNITS_OF_TIME:
        if abs(seconds) >= length:
            amount = f"{abs(seconds) // length} {unit}"
            return f"{amount} ago" if seconds > 0 else f"in {amount}"
    return "just now"


class PlainFormatter(logging.Formatter):
    """Log formatter that cleans and redacts text, and indents the further lines of an entry."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = clean(record.message).replace("\n", "⏎ ")
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = redacted(clean(super().format(record))).split("\n")
        return "\n".join([first, *(f"  {line}" for line in rest)])


LONGEST_TEXT = 200_000
SCHEMES = ("http://", "https://")
RENDERED_HEADINGS = {"h1": "h3", "h2": "h4", "h3": "h5"}
"""Headings in a text are below the headings of the page."""


def rendered(text: str) -> SafeString:
    """Render Markdown of a model as safe HTML: no raw HTML, no images, links to http(s) only."""
    html: str = _markdown().render(clean(cut(text, LONGEST_TEXT)).strip())
    return SafeString(html)  # the renderer escapes all text


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt  # few commands need it, and it takes long to import

    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False})
    markdown.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    markdown.validateLink = lambda url: url.lower().startswith(SCHEMES)  # type: ignore[method-assign]
    markdown.core.ruler.push("below_the_page", _below_the_page)
    return markdown


def _below_the_page(state: object) -> None:
    """Lower the headings, and mark links as external."""
    for token in getattr(state, "tokens", ()):
        token.tag = RENDERED_HEADINGS.get(token.tag, token.tag)
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("rel", "noopener noreferrer nofollow")


AROUND = 70
"""Characters on either side of a match."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundWords:
    """Excerpt of a text with the match of a search."""

    where: str
    before: str
    match: str
    after: str


def found_words(words: str, texts: Mapping[str, str]) -> FoundWords | None:
    """Return an excerpt of the first text that contains the words, ignoring case, or None."""
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


def unless_said(text: str, *said: str) -> str:
    """Return a text, or an empty string if one of the other texts contains it."""
    words = _words(text)
    return "" if any(words in _words(other) for other in said if other) else text


def _words(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


# Estimate of tokens, for texts that are limited because they become part of a prompt. It is
# conservative: measured with a tokenizer of Claude, no sample of any script had more tokens.

_PIECE = re.compile(
    r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]|[ \t\r\n]+|[\x00-\x7f]|[^\x00-\x7f]", re.ASCII
)
# Tokens of a character, by the first code point after its block.
_TOKENS_BY_BLOCK = (
    (0x0370, 2.0),  # Latin letters with marks
    (0x0400, 1.25),  # Greek
    (0x0530, 1.0),  # Cyrillic
    (0x0900, 1.25),  # Hebrew, Arabic
    (0x1100, 2.0),  # scripts of India, Thai, Georgian
    (0x1E00, 3.5),
    (0x1F00, 2.0),  # Vietnamese
    (0x2000, 2.0),
    (0x2070, 1.0),  # dashes, quotation marks
    (0x3000, 2.0),  # arrows, symbols
    (0xA000, 1.5),  # Chinese, Japanese
    (0xAC00, 3.5),
    (0xD7B0, 1.5),  # Korean
    (0xFF00, 3.5),
    (0xFFF0, 1.5),  # full-width forms
    (0x10000, 3.5),
)
_TOKENS_OF_EMOJI = 4.0
_LONGEST_WHOLE_WORD, _LONGEST_WORD = 6, 12


def estimated_tokens(text: str) -> int:
    return ceil(sum(map(_tokens_of_piece, _PIECE.findall(text))))


def _tokens_of_piece(piece: str) -> float:
    first, length = piece[0], len(piece)
    if not first.isascii():
        block = (tokens for end, tokens in _TOKENS_BY_BLOCK if ord(first) < end)
        return next(block, _TOKENS_OF_EMOJI)
    if first.isspace():
        return 0 if piece == " " else ceil(length / 4)
    if first.isdigit():
        return 1.25
    if not first.isalpha():
        return 0.75
    if length <= (_LONGEST_WHOLE_WORD // 2 if piece.isupper() else _LONGEST_WHOLE_WORD):
        return 1
    return ceil(length / (4 if length <= _LONGEST_WORD else 1.75))


def cut_to_tokens(text: str, most: int) -> str:
    """Shorten a text so that its estimate is at most a number of tokens, with an ellipsis."""
    if estimated_tokens(text) <= most:
        return text
    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if estimated_tokens(f"{text[:middle]}…") <= most:
            fits = middle
        else:
            too_long = middle
    return f"{text[:fits]}…" if fits else ""


def token_limit(most: int) -> str:
    """Describe a limit of tokens in words."""
    letters, characters = round(most * 10 / 3, -1), round(most / 1.5, -1)
    return (
        f"at most {most:,} tokens, which are about {letters:,.0f} letters of English or "
        f"{characters:,.0f} characters of Chinese"
    )
