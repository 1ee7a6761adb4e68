"""The CLI's output, read without trust: bytes to lines, lines to facts.

Lines may be of any length, broken, of unknown type, with missing or odd fields. Nothing here
raises for what a program printed; what is not understood is kept as it came.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_COUNT = 2**53
MAX_SESSION_ID_LENGTH = 100
MAX_TURNS = 2**31 - 1
# Far deeper than any message, and shallow enough for every JSON reader behind us.
MAX_DEPTH = 200
COST_STEP = Decimal("1e-10")


class LineSplitter:
    """Cut a byte stream into lines. A line over the limit keeps its beginning only."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        *complete, rest = data.split(b"\n")
        lines = []
        for piece in complete:
            self._hold(piece)
            lines.append(self._take())
        self._hold(rest)
        return [line for line in lines if line.strip()]

    def rest(self) -> list[bytes]:
        """What stands after the last line end: half a line, when the process died."""
        line = self._take()
        return [line] if line.strip() else []

    def _hold(self, piece: bytes) -> None:
        kept = piece[: max(0, self._limit - self._held)]
        if kept:
            self._pieces.append(kept)
            self._held += len(kept)

    def _take(self) -> bytes:
        line = b"".join(self._pieces)
        self._pieces, self._held = [], 0
        return line


@dataclass(frozen=True, slots=True)
class StreamLine:
    """One line of stdout: an object of the stream, or noise."""

    payload: dict[str, Any]
    kind: str
    is_noise: bool = False


def parse_line(line: bytes) -> StreamLine:
    text = line.decode("utf-8", "replace")
    try:
        payload = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict) or _is_too_deep(payload):
        return StreamLine(payload={"text": storable(text.strip())}, kind="", is_noise=True)
    if "\\u0000" in text or "\\ud" in text.lower():
        payload = storable(payload)
    kind = _text(payload.get("type"))
    if subtype := _text(payload.get("subtype")):
        kind = f"{kind}/{subtype}"
    return StreamLine(payload=payload, kind=kind[:100])


def storable(value: Any) -> Any:
    """The same value without what a database cannot hold: NUL and half surrogate pairs."""
    if isinstance(value, str):
        whole = value.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass")
        return whole.decode("utf-16", "replace")
    if isinstance(value, list):
        return [storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    return value


@dataclass(slots=True)
class Tokens:
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_creation: int = 0


@dataclass(slots=True)
class RunFacts:
    """What the stream has told about a run so far."""

    session_id: str = ""
    model: str = ""
    answered: bool = False
    """The model has said something: money was spent and tools may have run."""
    tools_started: int = 0
    open_tools: set[str] = field(default_factory=set)
    """Calls that have begun and not answered."""
    messages: int = 0
    compactions: int = 0
    context_tokens: int = 0
    streamed: dict[str, Tokens] = field(default_factory=dict)
    """Usage by message id: every block of a message repeats the same figures."""
    results: list[dict[str, Any]] = field(default_factory=list)

    def observe(self, payload: dict[str, Any]) -> None:
        match payload.get("type"):
            case "system" if payload.get("subtype") == "init":
                self.session_id = _session_id(payload) or self.session_id
                self.model = _text(payload.get("model")) or self.model
            case "system" if payload.get("subtype") == "compact_boundary":
                self.compactions += 1
            case "assistant":
                self._observe_answer(payload)
            case "user":
                self.messages += 1
                self.open_tools -= _ids(_object(payload.get("message")), "tool_use_id")
            case "result":
                self.results.append(payload)
                if payload.get("is_error") is False and not self.session_id:
                    self.session_id = _session_id(payload)

    def _observe_answer(self, payload: dict[str, Any]) -> None:
        message = _object(payload.get("message"))
        if message.get("model") == "<synthetic>":
            return
        self.answered = True
        self.tools_started += _tools_in(message)
        self.open_tools |= _ids(message, "id")
        usage = tokens_in(_object(message.get("usage")))
        if (message_id := _text(message.get("id"))) not in self.streamed:
            self.messages += 1
            self.streamed[message_id] = usage
        if payload.get("parent_tool_use_id") is None:
            self.context_tokens = min(
                MAX_COUNT, usage.input + usage.cache_read + usage.cache_creation + usage.output
            )

    @property
    def result(self) -> dict[str, Any]:
        """The last result line, or an empty object."""
        return self.results[-1] if self.results else {}

    @property
    def turns(self) -> int:
        return min(MAX_TURNS, sum(_count(result.get("num_turns")) for result in self.results))

    @property
    def result_text(self) -> str:
        return _text(self.result.get("result"))

    @property
    def structured_output(self) -> Any:
        return self.result.get("structured_output")

    @property
    def reported_cost_usd(self) -> Decimal | None:
        return to_cost(self.result.get("total_cost_usd"))

    @property
    def own_cost_usd(self) -> Decimal | None:
        """This run's share, where the CLI states it; else what it reports."""
        shares = self._own_model_usage()
        if shares is None:
            return self.reported_cost_usd
        return sum((to_cost(share.get("costUSD")) or Decimal(0) for share in shares), Decimal(0))

    @property
    def states_own_share(self) -> bool:
        return self._own_model_usage() is not None

    @property
    def streamed_tokens(self) -> Tokens:
        """What the stream proves: at least this much was used."""
        return Tokens(
            input=min(MAX_COUNT, sum(usage.input for usage in self.streamed.values())),
            output=min(MAX_COUNT, sum(usage.output for usage in self.streamed.values())),
            cache_read=min(MAX_COUNT, sum(usage.cache_read for usage in self.streamed.values())),
            cache_creation=min(
                MAX_COUNT, sum(usage.cache_creation for usage in self.streamed.values())
            ),
        )

    @property
    def own_tokens(self) -> Tokens:
        shares = self._own_model_usage()
        if shares is None and self.results:
            return tokens_in(_object(self.result.get("usage")))
        if shares is None:
            return self.streamed_tokens
        return _tokens_by_model(shares)

    @property
    def reported_tokens(self) -> Tokens:
        """By model, with subagents and the CLI's own auxiliary calls, which `usage` leaves out."""
        return _tokens_by_model(
            [_object(share) for share in _object(self.result.get("modelUsage")).values()]
        )

    @property
    def context_window(self) -> int:
        usage = _object(_object(self.result.get("modelUsage")).get(self.model))
        return _count(usage.get("contextWindow"))

    def _own_model_usage(self) -> list[dict[str, Any]] | None:
        shares: list[dict[str, Any]] = []
        for result in self.results:
            by_model = result.get("model_usage_since_last_result")
            if not isinstance(by_model, dict):
                return None
            shares.extend(_object(share) for share in by_model.values())
        return shares if self.results else None


def tokens_in(usage: dict[str, Any]) -> Tokens:
    return Tokens(
        input=_count(usage.get("input_tokens")),
        output=_count(usage.get("output_tokens")),
        cache_read=_count(usage.get("cache_read_input_tokens")),
        cache_creation=_count(usage.get("cache_creation_input_tokens")),
    )


def to_cost(value: Any) -> Decimal | None:
    """The CLI prints floats like 0.018000000000000002: ten places are more than any price has."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        cost = Decimal(repr(value)).quantize(COST_STEP)
    except InvalidOperation:
        return None
    return cost if 0 <= cost < Decimal("1e9") else None


def _tools_in(message: dict[str, Any]) -> int:
    """Calls of real tools: the report is given through a call that touches nothing."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return sum(
        1
        for block in blocks
        if isinstance(block, dict)
        and block.get("type") == "tool_use"
        and block.get("name") != "StructuredOutput"
    )


def _ids(message: dict[str, Any], key: str) -> set[str]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return {_text(block.get(key)) for block in blocks if isinstance(block, dict)} - {""}


def _tokens_by_model(shares: list[dict[str, Any]]) -> Tokens:
    return Tokens(
        input=_total(shares, "inputTokens"),
        output=_total(shares, "outputTokens"),
        cache_read=_total(shares, "cacheReadInputTokens"),
        cache_creation=_total(shares, "cacheCreationInputTokens"),
    )


def _total(shares: list[dict[str, Any]], key: str) -> int:
    return min(MAX_COUNT, sum(_count(share.get(key)) for share in shares))


def _is_too_deep(payload: dict[str, Any]) -> bool:
    level: list[Any] = [payload]
    for _depth in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _finite(number: str) -> float:
    """1e999 reads as infinity, which no database takes for JSON."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is too large")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _session_id(payload: dict[str, Any]) -> str:
    """An id longer than any that the CLI gives is none."""
    stated = _text(payload.get("session_id"))
    return stated if len(stated) <= MAX_SESSION_ID_LENGTH else ""


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(0, value), MAX_COUNT)
