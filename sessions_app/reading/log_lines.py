"""Lines of our own log: one entry cannot look like two, nothing in it acts on a terminal,
and no secret is in it."""

from __future__ import annotations

import logging

from sessions_app.reading.masking import masked
from sessions_app.reading.plain_text import clean


class PlainFormatter(logging.Formatter):
    """What a tool said may stand in a message or an exception; only we begin a line with a time."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = clean(record.message).replace("\n", "⏎ ")
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = masked(clean(super().format(record))).split("\n")
        return "\n".join([first, *(f"  {line}" for line in rest)])
