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

from sessions_app.reading import stream_shape as shape
from sessions_app.reading.edits import EDITING_TOOLS

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
    kind = shape.text(payload.get("type"))
    if subtype := shape.text(payload.get("subtype")):
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


@dataclass(frozen=True, slots=True)
class Tokens:
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_creation: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            input=min(MAX_COUNT, self.input + other.input),
            output=min(MAX_COUNT, self.output + other.output),
            cache_read=min(MAX_COUNT, self.cache_read + other.cache_read),
            cache_creation=min(MAX_COUNT, self.cache_creation + other.cache_creation),
        )


@dataclass(frozen=True, slots=True)
class OwnShare:
    """What newer CLIs state for a run by itself, apart from the conversation's total."""

    cost_usd: Decimal
    tokens: Tokens

    def __add__(self, other: OwnShare) -> OwnShare:
        return OwnShare(self.cost_usd + other.cost_usd, self.tokens + other.tokens)


@dataclass(slots=True)
class StreamFacts:
    """What the stream has told about a run so far. It grows with what is said, not with time."""

    session_id: str = ""
    model: str = ""
    answered: bool = False
    """The model has said something: money was spent and tools may have run."""
    tools_started: int = 0
    edits_begun: int = 0
    open_tools: set[str] = field(default_factory=set)
    """Calls that have begun and not answered."""
    cut_tools: set[str] = field(default_factory=set)
    """Calls that were under way when the run was stopped, whatever they answered to that."""
    tool_ids: set[str] = field(default_factory=set)
    """Every call of the main thread; a subagent's are written down elsewhere."""
    messages: int = 0
    compactions: int = 0
    context_tokens: int = 0
    streamed: dict[str, Tokens] = field(default_factory=dict)
    """Usage by message id: every block of a message repeats the same figures."""
    writes_lost: bool = False
    """The CLI could not write its transcript down: what it would resume has a hole in it."""
    result: dict[str, Any] = field(default_factory=dict)
    """The last result line; newer CLIs print several in one run."""
    turns: int = 0
    rate_limit: dict[str, Any] = field(default_factory=dict)
    """What the API said of the account's limit; a later word stands over an earlier one."""
    own_share: OwnShare | None = None
    """What the CLI states for this run alone, over all result lines; None where one does not."""

    def observe(self, payload: dict[str, Any]) -> None:
        match payload.get("type"):
            case "system" if payload.get("subtype") == "init":
                self.session_id = _session_id(payload) or self.session_id
                self.model = shape.text(payload.get("model")) or self.model
            case "system" if payload.get("subtype") == "compact_boundary":
                self.compactions += 1
            case "system" if payload.get("subtype") == "session_writes_lost":
                self.writes_lost = True
            case "assistant":
                self._observe_answer(payload)
            case "user":
                self.messages += 1
                self.open_tools -= shape.answered_calls(payload)
            case "rate_limit_event":
                self.rate_limit |= _object(payload.get("rate_limit_info"))
            case "result":
                self._observe_result(payload)

    def _observe_answer(self, payload: dict[str, Any]) -> None:
        if not shape.is_answer(payload):
            return
        message = shape.message_of(payload)
        self.answered = True
        calls = shape.calls_of(payload)
        self.tools_started += len(calls)
        self.edits_begun += sum(call.get("name") in EDITING_TOOLS for call in calls)
        self.open_tools |= shape.begun_calls(payload)
        usage = tokens_in(_object(message.get("usage")))
        if (message_id := shape.text(message.get("id"))) not in self.streamed:
            self.messages += 1
            self.streamed[message_id] = usage
        if shape.is_main_thread(payload):
            self.tool_ids |= shape.begun_calls(payload)
            self.context_tokens = min(
                MAX_COUNT, usage.input + usage.cache_read + usage.cache_creation + usage.output
            )

    def note_stop(self) -> None:
        """From now on a tool's answer may only say that it was ended with its run."""
        self.cut_tools |= self.open_tools

    def learn_usage(self, entry: dict[str, Any]) -> None:
        """A line of the stream states usage as it was when the message began; the transcript, as it
        was in the end."""
        message = shape.message_of(entry)
        message_id = shape.text(message.get("id"))
        if shape.is_answer(entry) and message_id in self.streamed:
            usage = tokens_in(_object(message.get("usage")))
            if usage.output > self.streamed[message_id].output:
                self.streamed[message_id] = usage

    def _observe_result(self, payload: dict[str, Any]) -> None:
        is_first = not self.result
        self.result = payload
        self.turns = min(MAX_TURNS, self.turns + _count(payload.get("num_turns")))
        share = _stated_share(payload)
        if is_first:
            self.own_share = share
        elif self.own_share is not None:
            self.own_share = self.own_share + share if share is not None else None
        if payload.get("is_error") is False and not self.session_id:
            self.session_id = _session_id(payload)

    @property
    def result_text(self) -> str:
        return shape.text(self.result.get("result"))

    @property
    def structured_output(self) -> Any:
        return self.result.get("structured_output")

    @property
    def reported_cost_usd(self) -> Decimal | None:
        return to_cost(self.result.get("total_cost_usd"))

    @property
    def streamed_tokens(self) -> Tokens:
        """What the stream proves: at least this much was used."""
        return sum(self.streamed.values(), Tokens())

    @property
    def own_tokens(self) -> Tokens:
        """Of this run alone, from the best source that the stream has."""
        if self.own_share is not None:
            return self.own_share.tokens
        if self.result:
            return tokens_in(_object(self.result.get("usage")))
        return self.streamed_tokens

    @property
    def reported_tokens(self) -> Tokens | None:
        """By model, with subagents and the CLI's own auxiliary calls, which `usage` leaves out."""
        by_model = self.result.get("modelUsage")
        return _tokens_by_model(by_model) if isinstance(by_model, dict) else None

    @property
    def context_window(self) -> int:
        usage = _object(_object(self.result.get("modelUsage")).get(self.model))
        return _count(usage.get("contextWindow"))


def _stated_share(result: dict[str, Any]) -> OwnShare | None:
    by_model = result.get("model_usage_since_last_result")
    if not isinstance(by_model, dict):
        return None
    costs = (to_cost(_object(share).get("costUSD")) or Decimal(0) for share in by_model.values())
    return OwnShare(cost_usd=sum(costs, Decimal(0)), tokens=_tokens_by_model(by_model))


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


def _tokens_by_model(by_model: dict[str, Any]) -> Tokens:
    shares = [_object(share) for share in by_model.values()]
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


def _session_id(payload: dict[str, Any]) -> str:
    """An id longer than any that the CLI gives is none."""
    stated = shape.text(payload.get("session_id"))
    return stated if len(stated) <= MAX_SESSION_ID_LENGTH else ""


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(0, value), MAX_COUNT)
