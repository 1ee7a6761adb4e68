"""The tool calls of a session, read from its stored stream events.

The CLI prints one line per block: the calls of one answer come as several lines with the same
message id, and their results come later, in any order, tied to the call by its id. Nothing here
raises: a field that is missing or of another type is read as empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sessions_app.reading import stream_shape as shape
from sessions_app.reading.plain_text import as_text

# The part of an input that acts; the rest (a description, a time limit) may change from run to run.
ACTING_INPUTS = {"Bash": "command"}
DEEPEST = 50


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    input: Any
    normalised: str
    """The input as it is compared: without what makes no difference to what the call does."""
    output: str
    """Empty when there was none, or when the run ended before it came."""
    is_answered: bool
    """False: the run ended in the middle of the call."""
    is_error: bool
    message_id: str
    """The answer of the model that the call is part of; empty when the stream did not say."""

    @property
    def key(self) -> tuple[str, str]:
        """Two calls with the same key do the same work."""
        return self.name, self.normalised


def tool_calls(events: Iterable[Any]) -> list[ToolCall]:
    """The calls in their order, each with its result. Takes stored events, or their payloads."""
    calls: dict[str, ToolCall] = {}
    for data in map(_payload, events):
        message_id = as_text(shape.message_of(data).get("id"))
        for block in shape.calls_of(data):
            # A line that is printed twice is one call; a call without an id is its own.
            number = as_text(block.get("id")) or f"unnamed {len(calls)}"
            calls.setdefault(number, _call(block, message_id))
        for block in shape.results_of(data):
            number = as_text(block.get("tool_use_id"))
            if number in calls:
                calls[number] = _answered(calls[number], block)
    return list(calls.values())


def answers(events: Iterable[Any]) -> dict[str, bool]:
    """The model's answers by their ids, in order, and whether each holds the report."""
    seen: dict[str, bool] = {}
    for data in map(_payload, events):
        message_id = as_text(shape.message_of(data).get("id"))
        if shape.is_answer(data) and message_id:
            blocks = shape.blocks_of(data)
            reports = any(block.get("name") == shape.REPORT_TOOL for block in blocks)
            seen[message_id] = seen.get(message_id, False) or reports
    return seen


def denied_calls(events: Iterable[Any]) -> set[tuple[str, str]]:
    """Keys of the calls that the CLI did not let happen, from what its result lines list."""
    denied = set()
    for data in map(_payload, events):
        listed = data.get("permission_denials")
        for denial in listed if isinstance(listed, list) else []:
            name = as_text(shape.mapping(denial).get("tool_name"))
            denied.add((name, normalised(name, shape.mapping(denial).get("tool_input"))))
    return denied


def normalised(name: str, given: Any) -> str:
    """An input without differences that make none: spacing, the order of keys, remarks."""
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
    output = shape.output_of(result)
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
    return shape.mapping(event if isinstance(event, Mapping) else getattr(event, "payload", None))
