"""Reads the usage out of an answer while it passes, whatever the answer is made of.

Nothing here raises for what a server sent, and nothing grows with the length of an answer: what is
needed stands in two short events of a stream, or in one JSON body of ordinary size.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

from escalation.agent import LineSplitter, Tokens, tokens_in
from escalation.gateway.spending import MAX_MODEL_LENGTH, Usage

MAX_EVENT_BYTES = 1024 * 1024
MAX_BODY_BYTES = 16 * 1024 * 1024
_COUNTED = (b'"message_start"', b'"message_delta"', b'"message_stop"')


class Meter:
    """Fed with the pieces of one answer; `usage` is what they have shown so far."""

    def __init__(self, *, model: str, content_type: str, encoding: str = "") -> None:
        self._model = model
        self._is_stream = content_type.strip().lower().startswith("text/event-stream")
        self._unpack = _unpacking(encoding)
        self._lines = LineSplitter(MAX_EVENT_BYTES)
        self._body = bytearray()
        self._stated: dict[str, Any] = {}
        self._complete = False

    @property
    def usage(self) -> Usage:
        return Usage(model=self._model, tokens=self.tokens, complete=self._complete)

    @property
    def tokens(self) -> Tokens:
        return tokens_in(self._stated)

    def feed(self, piece: bytes) -> None:
        for plain in self._plain(piece):
            if not self._is_stream:
                self._body += plain[: max(0, MAX_BODY_BYTES - len(self._body))]
                continue
            for line in self._lines.feed(plain):
                self._read_line(line)

    def end(self) -> None:
        """The answer was received to its end."""
        if not self._is_stream:
            if self._complete:
                return
            message = _object(self._body)
            self._read_message(message)
            self._complete = isinstance(message.get("usage"), dict)
            return
        for line in self._lines.rest():
            self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        if (
            self._complete
            or not line.startswith(b"data:")
            or not any(word in line for word in _COUNTED)
        ):
            return
        event = _object(line.removeprefix(b"data:"))
        match event.get("type"):
            case "message_start":
                self._read_message(event.get("message"))
            case "message_delta":
                self._learn(event.get("usage"))
            case "message_stop":
                self._complete = True

    def _read_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        named = message.get("model")
        if isinstance(named, str) and 0 < len(named) <= MAX_MODEL_LENGTH:
            self._model = named
        self._learn(message.get("usage"))

    def _learn(self, usage: Any) -> None:
        """Later figures are the sums up to then; one that is missing or null changes nothing."""
        if isinstance(usage, dict):
            self._stated |= {name: value for name, value in usage.items() if value is not None}

    def _plain(self, piece: bytes) -> Iterator[bytes]:
        """A small packed piece may hold a very large plain one: it is unpacked in steps."""
        if self._unpack is None:
            yield piece
            return
        try:
            while piece:
                yield self._unpack.decompress(piece, MAX_EVENT_BYTES)
                piece = self._unpack.unconsumed_tail
        except zlib.error:
            return


def _unpacking(encoding: str) -> Any:
    """gzip and deflate; of what else a server may send nothing can be read."""
    packed = encoding.strip().lower() in ("gzip", "x-gzip", "deflate")
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32) if packed else None


def _object(text: bytes | bytearray) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
