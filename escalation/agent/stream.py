"""Parses the output of the CLI: lines, messages, tool calls, edits, usage.

The only module that knows the format of the stream. Lines may be of any length, invalid or of
unknown type: nothing here raises for them, and a missing field or one of another type is empty.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from sessions_app.text import as_text, cut, mapping

# The tool by which the model gives its report.
REPORT_TOOL = "StructuredOutput"
# Messages that the CLI adds by itself, such as the text of an API failure.
SYNTHETIC_MODEL = "<synthetic>"


def text_in(value: Any) -> str:
    return value if isinstance(value, str) else ""


def message_of(line: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(line.get("message"))


def blocks_of(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the blocks of a message; a plain string is one block of text."""
    content = message_of(line).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, Mapping)]


def output_of(result: Mapping[str, Any]) -> str:
    """Return the output of a tool as text; other blocks are named by their type."""
    content = result.get("content")
    if not isinstance(content, list):
        return as_text(content)
    return "\n".join(
        as_text(piece.get("text") if piece.get("type") == "text" else piece.get("type"))
        for piece in content
        if isinstance(piece, Mapping)
    )


def model_of(line: Mapping[str, Any]) -> str:
    return text_in(message_of(line).get("model"))


def is_answer(line: Mapping[str, Any]) -> bool:
    """Return whether this is an answer of the model, which has a cost."""
    return line.get("type") == "assistant" and model_of(line) != SYNTHETIC_MODEL


def is_main_thread(line: Mapping[str, Any]) -> bool:
    """Return False for a line of a subagent."""
    return line.get("parent_tool_use_id") is None


def calls_of(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tool calls in a line, without the report."""
    if line.get("type") != "assistant":
        return []
    calls = [block for block in blocks_of(line) if block.get("type") == "tool_use"]
    return [block for block in calls if block.get("name") != REPORT_TOOL]


def results_of(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tool results in a line."""
    blocks = blocks_of(line) if line.get("type") == "user" else []
    return [block for block in blocks if block.get("type") == "tool_result"]


def begun_calls(line: Mapping[str, Any]) -> set[str]:
    """Return the ids of all calls in a line, including the report."""
    blocks = blocks_of(line) if line.get("type") == "assistant" else []
    return {text_in(block.get("id")) for block in blocks} - {""}


def answered_calls(line: Mapping[str, Any]) -> set[str]:
    """Return the ids of the calls whose results are in a line."""
    return {text_in(block.get("tool_use_id")) for block in results_of(line)} - {""}


# Tool calls of a session, from its stored stream events.
#
# The CLI prints one line per block: the calls of one answer are several lines with the same
# message id. Their results follow in any order, with the id of the call.

# The significant part of an input; the rest (a description, a time limit) differs between runs.
ACTING_INPUTS = {"Bash": "command"}
DEEPEST = 50


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    input: Any
    normalised: str
    """The input in the form in which calls are compared."""
    output: str
    is_answered: bool
    """False if the run ended during the call."""
    is_error: bool
    message_id: str
    """Id of the answer that the call is part of; empty if unknown."""

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.normalised


def tool_calls(events: Iterable[Any]) -> list[ToolCall]:
    """Return the calls in order with their results, from stored events or their payloads."""
    calls: dict[str, ToolCall] = {}
    for data in map(_payload, events):
        message_id = as_text(message_of(data).get("id"))
        for block in calls_of(data):
            number = as_text(block.get("id")) or f"unnamed {len(calls)}"
            calls.setdefault(number, _call(block, message_id))
        for block in results_of(data):
            number = as_text(block.get("tool_use_id"))
            if number in calls:
                calls[number] = _answered(calls[number], block)
    return list(calls.values())


def answers(events: Iterable[Any]) -> dict[str, bool]:
    """Map the ids of answers, in order, to whether they have the report."""
    seen: dict[str, bool] = {}
    for data in map(_payload, events):
        message_id = as_text(message_of(data).get("id"))
        if is_answer(data) and message_id:
            blocks = blocks_of(data)
            reports = any(block.get("name") == REPORT_TOOL for block in blocks)
            seen[message_id] = seen.get(message_id, False) or reports
    return seen


def denied_calls(events: Iterable[Any]) -> set[tuple[str, str]]:
    """Return the keys of calls that the CLI denied, from its result lines."""
    denied = set()
    for data in map(_payload, events):
        listed = data.get("permission_denials")
        for denial in listed if isinstance(listed, list) else []:
            name = as_text(mapping(denial).get("tool_name"))
            denied.add((name, normalised(name, mapping(denial).get("tool_input"))))
    return denied


def normalised(name: str, given: Any) -> str:
    """Return an input without differences in spacing, order of keys and remarks."""
    acting = ACTING_INPUTS.get(name)
    if acting and isinstance(given, Mapping) and isinstance(given.get(acting), str):
        return _collapsed_text(given[acting])
    return json.dumps(_collapsed(given, DEEPEST), sort_keys=True, ensure_ascii=False)


def _call(block: Mapping[str, Any], message_id: str) -> ToolCall:
    name = as_text(block.get("name"))
    return ToolCall(
        name=name,
        input=block.get("input"),
        normalised=normalised(name, block.get("input")),
        output="",
        is_answered=False,
        is_error=False,
        message_id=message_id,
    )


def _answered(call: ToolCall, result: Mapping[str, Any]) -> ToolCall:
    output = output_of(result)
    return replace(call, output=output, is_answered=True, is_error=bool(result.get("is_error")))


def _collapsed(value: Any, depth: int) -> Any:
    if depth <= 0:
        return "…"
    if isinstance(value, str):
        return _collapsed_text(value)
    if isinstance(value, Mapping):
        return {
            _collapsed_text(as_text(key)): _collapsed(item, depth - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_collapsed(item, depth - 1) for item in value]
    return value if isinstance(value, int | float | None) else as_text(value)


def _collapsed_text(text: str) -> str:
    return " ".join(text.split())


def _payload(event: Any) -> Mapping[str, Any]:
    return mapping(event if isinstance(event, Mapping) else getattr(event, "payload", None))


# Edits of a run, from its stored stream events.
#
# A call that failed, was denied or has no result is no edit. Newer CLIs send the patch with the
# result; without it the diff is made from the call.

EDITING_TOOLS = frozenset({"Edit", "Write", "NotebookEdit", "MultiEdit"})
VERBS = {"Write": "write"}
LONGEST_DIFF = 20_000
LONGEST_PATH = 1_000
LONGEST_COMPARED = 200_000
CUT_OFF = "… ("


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    call: str
    tool: str
    path: str
    diff: str
    at: datetime

    @property
    def action(self) -> str:
        return f"{VERBS.get(self.tool, 'edit')} {self.path}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedLine:
    """One stored line of the stream."""

    payload: Any
    at: datetime


def edits_in(lines: Iterable[RecordedLine], *, denied: bool = False) -> list[Edit]:
    """Return edits in the order of their results; with `denied`, those that were not made."""
    begun: dict[str, Mapping[str, Any]] = {}
    done: dict[str, Edit] = {}
    for line in lines:
        data = mapping(line.payload)
        begun |= {
            text_in(block.get("id")): block
            for block in calls_of(data)
            if block.get("name") in EDITING_TOOLS and block.get("id")
        }
        for result in results_of(data):
            call = text_in(result.get("tool_use_id"))
            if call in begun and call not in done and bool(result.get("is_error")) == denied:
                done[call] = _edit(call, begun[call], data, line.at)
    return list(done.values())


def is_cut(diff: str) -> bool:
    return diff.rpartition("\n")[2].startswith(CUT_OFF) or CUT_OFF in diff[-60:]


def _edit(call: str, block: Mapping[str, Any], line: Mapping[str, Any], at: datetime) -> Edit:
    given = mapping(block.get("input"))
    path = text_in(given.get("file_path")) or text_in(given.get("notebook_path"))
    result = mapping(line.get("tool_use_result") or line.get("toolUseResult"))
    diff = _sent_patch(result) or _own_diff(given, result)
    return Edit(
        call=call,
        tool=text_in(block.get("name")),
        path=path[:LONGEST_PATH],
        diff=cut(diff, LONGEST_DIFF),
        at=at,
    )


def _sent_patch(result: Mapping[str, Any]) -> str:
    """Return the patch that the CLI sends with its result."""
    hunks = result.get("structuredPatch")
    listed = [mapping(hunk) for hunk in hunks] if isinstance(hunks, list) else []
    return "\n".join(line for hunk in listed for line in _hunk(hunk))


def _hunk(hunk: Mapping[str, Any]) -> list[str]:
    lines = hunk.get("lines")
    numbers = [hunk.get(name) for name in ("oldStart", "oldLines", "newStart", "newLines")]
    if not isinstance(lines, list) or not all(isinstance(number, int) for number in numbers):
        return []
    head = "@@ -{},{} +{},{} @@".format(*numbers)
    return [head, *(text_in(line) for line in lines)]


def _own_diff(given: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if "new_source" in given:
        return _between("", text_in(given.get("new_source")))
    if "content" in given:
        before = text_in(result.get("originalFile"))
        return _between(before, text_in(given.get("content")))
    steps = given.get("edits")
    pairs = [mapping(step) for step in steps] if isinstance(steps, list) else [given]
    found = [
        _between(text_in(pair.get("old_string")), text_in(pair.get("new_string"))) for pair in pairs
    ]
    return "\n".join(filter(None, found))


def _between(before: str, after: str) -> str:
    """Return a unified diff without file names."""
    if max(len(before), len(after)) > LONGEST_COMPARED:
        return "\n".join([*_marked("-", before), *_marked("+", after)])
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="")
    return "\n".join(list(lines)[2:])


def _marked(sign: str, text: str) -> Sequence[str]:
    return [f"{sign}{line}" for line in text[:LONGEST_DIFF].splitlines()]


MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_COUNT = 2**53
MAX_SESSION_ID_LENGTH = 100
MAX_TURNS = 2**31 - 1
# Deeper than any message, and within the limits of JSON parsers.
MAX_DEPTH = 200
COST_STEP = Decimal("1e-10")


class LineSplitter:
    """Splits a byte stream into lines. Only the beginning of a line over the limit is kept."""

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
        """Return the text after the last line end, if any."""
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
    """One line of stdout: an object of the stream, or other output (noise)."""

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
    kind = text_in(payload.get("type"))
    if subtype := text_in(payload.get("subtype")):
        kind = f"{kind}/{subtype}"
    return StreamLine(payload=payload, kind=kind[:100])


def storable(value: Any) -> Any:
    """Replace characters that databases cannot store: NUL and unpaired surrogates."""
    if isinstance(value, str):
        whole = value.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass")
        return whole.decode("utf-16", "replace")
    if isinstance(value, list):
        return [storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    return value


# Prices relative to an input token, the same for every model so far.
OUTPUT_WEIGHT, CACHE_WRITE_WEIGHT, CACHE_READ_WEIGHT = Decimal(5), Decimal("1.25"), Decimal("0.1")


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

    @property
    def weighted(self) -> Decimal:
        """Number of input tokens of the same price."""
        return (
            Decimal(self.input)
            + OUTPUT_WEIGHT * self.output
            + CACHE_WRITE_WEIGHT * self.cache_creation
            + CACHE_READ_WEIGHT * self.cache_read
        )


@dataclass(frozen=True, slots=True)
class OwnShare:
    """The usage of one run, which newer CLIs state besides the total."""

    cost_usd: Decimal
    tokens: Tokens

    def __add__(self, other: OwnShare) -> OwnShare:
        return OwnShare(self.cost_usd + other.cost_usd, self.tokens + other.tokens)


@dataclass(slots=True)
class StreamFacts:
    """Facts about a run from its stream so far."""

    session_id: str = ""
    model: str = ""
    answered: bool = False
    """The model has answered, so there is a cost and tools may have run."""
    tools_started: int = 0
    edits_begun: int = 0
    open_tools: set[str] = field(default_factory=set)
    """Calls without a result."""
    cut_tools: set[str] = field(default_factory=set)
    """Calls without a result when the run was stopped, whatever came later."""
    tool_ids: set[str] = field(default_factory=set)
    """Calls of the main thread; subagents have their own transcripts."""
    messages: int = 0
    compactions: int = 0
    context_tokens: int = 0
    streamed: dict[str, Tokens] = field(default_factory=dict)
    """Usage by message id; every block of a message repeats it."""
    writes_lost: bool = False
    """The CLI could not write all of its transcript."""
    result: dict[str, Any] = field(default_factory=dict)
    """The last result line; newer CLIs print several."""
    turns: int = 0
    rate_limit: dict[str, Any] = field(default_factory=dict)
    """Latest fields of the rate limit events."""
    own_share: OwnShare | None = None
    """Usage of this run alone over all result lines; None if a line does not state it."""

    def observe(self, payload: dict[str, Any]) -> None:
        match payload.get("type"):
            case "system" if payload.get("subtype") == "init":
                self.session_id = _session_id(payload) or self.session_id
                self.model = text_in(payload.get("model")) or self.model
            case "system" if payload.get("subtype") == "compact_boundary":
                self.compactions += 1
            case "system" if payload.get("subtype") == "session_writes_lost":
                self.writes_lost = True
            case "assistant":
                self._observe_answer(payload)
            case "user":
                self.messages += 1
                self.open_tools -= answered_calls(payload)
            case "rate_limit_event":
                self.rate_limit |= _object(payload.get("rate_limit_info"))
            case "result":
                self._observe_result(payload)

    def _observe_answer(self, payload: dict[str, Any]) -> None:
        if not is_answer(payload):
            return
        message = message_of(payload)
        self.answered = True
        calls = calls_of(payload)
        self.tools_started += len(calls)
        self.edits_begun += sum(call.get("name") in EDITING_TOOLS for call in calls)
        self.open_tools |= begun_calls(payload)
        usage = tokens_in(_object(message.get("usage")))
        if (message_id := text_in(message.get("id"))) not in self.streamed:
            self.messages += 1
            self.streamed[message_id] = usage
        if is_main_thread(payload):
            self.tool_ids |= begun_calls(payload)
            self.context_tokens = min(
                MAX_COUNT, usage.input + usage.cache_read + usage.cache_creation + usage.output
            )

    def note_stop(self) -> None:
        """Remember open calls: their results may only say that the run was stopped."""
        self.cut_tools |= self.open_tools

    def learn_usage(self, entry: dict[str, Any]) -> None:
        """Take the usage of a message from the transcript, which has its final value."""
        message = message_of(entry)
        message_id = text_in(message.get("id"))
        if is_answer(entry) and message_id in self.streamed:
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
        return text_in(self.result.get("result"))

    @property
    def structured_output(self) -> Any:
        return self.result.get("structured_output")

    @property
    def reported_cost_usd(self) -> Decimal | None:
        return to_cost(self.result.get("total_cost_usd"))

    @property
    def streamed_tokens(self) -> Tokens:
        """The minimal usage according to the stream."""
        return sum(self.streamed.values(), Tokens())

    @property
    def own_tokens(self) -> Tokens:
        """The usage of this run alone, from the best source in the stream."""
        if self.own_share is not None:
            return self.own_share.tokens
        if self.result:
            return tokens_in(_object(self.result.get("usage")))
        return self.streamed_tokens

    @property
    def reported_tokens(self) -> Tokens | None:
        """The usage by model, including subagents and auxiliary calls."""
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
    """Round a float such as 0.018000000000000002 to ten places."""
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
    """Refuse infinity (1e999), which databases do not accept in JSON."""
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is too large")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _session_id(payload: dict[str, Any]) -> str:
    stated = text_in(payload.get("session_id"))
    return stated if len(stated) <= MAX_SESSION_ID_LENGTH else ""


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(0, value), MAX_COUNT)


# Context window of a model, and how much of it a conversation uses.

SMALLEST_WINDOW = 200_000
LARGE_WINDOW = 1_000_000

# By first version, as tried with 2.1.197 and 2.1.325. A version in between counts as the older one:
# assuming too small a window costs a handoff, assuming too large a one costs the run.
DEFAULT_WINDOWS: tuple[tuple[tuple[int, ...], dict[str, int]], ...] = (
    (
        (2, 1, 325),
        {
            "haiku": LARGE_WINDOW,
            "sonnet": LARGE_WINDOW,
            "opus": LARGE_WINDOW,
            "claude-haiku-5-5": LARGE_WINDOW,
            "claude-sonnet-5-5": LARGE_WINDOW,
            "claude-opus-5-5": LARGE_WINDOW,
        },
    ),
    ((0,), {}),
)


def default_window(model: str, cli_version: str) -> int:
    """Return the window of a model that no run with this version has reported yet."""
    version = _numbers(cli_version)
    known = next(windows for since, windows in DEFAULT_WINDOWS if version >= since)
    return known.get(model, SMALLEST_WINDOW)


def occupancy_of(entries: Iterable[dict[str, Any]]) -> int:
    """Return the tokens of a transcript up to the last answer on its main thread.

    Each block of an answer is one entry. The stream has the output tokens at the start of the
    answer; only the transcript has their final number.
    """
    answers: dict[str, int] = {}
    for entry in entries:
        if number := _answer_id(entry):
            answers[number] = max(answers.pop(number, 0), _filled(entry["message"]))
    return next(reversed(answers.values()), 0)


def _answer_id(entry: dict[str, Any]) -> str:
    message = entry.get("message")
    if entry.get("type") != "assistant" or not isinstance(message, dict):
        return ""
    if entry.get("isSidechain") is True or message.get("model") == "<synthetic>":
        return ""
    return str(message.get("id") or entry.get("uuid") or "")


def _filled(message: dict[str, Any]) -> int:
    usage = message.get("usage")
    tokens = tokens_in(usage if isinstance(usage, dict) else {})
    return min(MAX_COUNT, tokens.input + tokens.cache_read + tokens.cache_creation + tokens.output)


def _numbers(cli_version: str) -> tuple[int, ...]:
    found = re.match(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})", cli_version)
    return tuple(int(number) for number in found.groups()) if found else (0,)
