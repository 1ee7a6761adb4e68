"""The wire format of the Messages API's answers: one JSON body, or the events of a stream.

The CLI speaks to this API. Whoever plays its other side (the probe of a binary, a drill) says what
to answer, and finds here how it is put.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
CHARACTERS_PER_TOKEN = 4
PIECE_LENGTH = 200
NO_USAGE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the model's side says, and what it charges for it."""

    say: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)


def error_body(status: int, message: str) -> dict[str, Any]:
    error_type = ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": error_type, "message": message}}


def message_body(answer: Answer, request: dict[str, Any]) -> dict[str, Any]:
    usage = usage_of(answer, request)
    return {**_envelope(request, usage), "content": _content(answer), "stop_reason": _stop(answer)}


def stream_events(answer: Answer, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage = usage_of(answer, request)
    yield {
        "type": "message_start",
        "message": {**_envelope(request, _at_the_start(usage)), "stop_reason": None},
    }
    for index, block in enumerate(_content(answer)):
        yield from _block_events(index, block)
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _stop(answer), "stop_sequence": None},
        "usage": usage,
    }
    yield {"type": "message_stop"}


def usage_of(answer: Answer, request: dict[str, Any]) -> dict[str, int]:
    """What it says itself, else an estimate from the real size of question and answer."""
    said = answer.say + "".join(json.dumps(dict(call.input)) for call in answer.calls)
    return {
        **NO_USAGE,
        "input_tokens": len(json.dumps(request)) // CHARACTERS_PER_TOKEN,
        "output_tokens": max(1, len(said) // CHARACTERS_PER_TOKEN),
        **answer.usage,
    }


def _at_the_start(usage: dict[str, int]) -> dict[str, int]:
    """The first event tells what was read; how much is said shows at the end."""
    return {**usage, "output_tokens": min(1, usage["output_tokens"])}


def _envelope(request: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model", "unknown"),
        "content": [],
        "stop_sequence": None,
        "usage": usage,
    }


def _content(answer: Answer) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": answer.say}] if answer.say else []
    calls = [
        {
            "type": "tool_use",
            "id": f"toolu_{uuid.uuid4().hex}",
            "name": call.tool,
            "input": dict(call.input),
        }
        for call in answer.calls
    ]
    return text + calls


def _stop(answer: Answer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _block_events(index: int, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    is_text = block["type"] == "text"
    opening = {**block, "text": ""} if is_text else {**block, "input": {}}
    content = block["text"] if is_text else json.dumps(block["input"])
    delta, delta_type = ("text", "text_delta") if is_text else ("partial_json", "input_json_delta")
    yield {"type": "content_block_start", "index": index, "content_block": opening}
    for start in range(0, len(content), PIECE_LENGTH):
        piece = content[start : start + PIECE_LENGTH]
        yield {
            "type": "content_block_delta",
            "index": index,
            "delta": {"type": delta_type, delta: piece},
        }
    yield {"type": "content_block_stop", "index": index}
