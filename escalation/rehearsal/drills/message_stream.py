"""The wire format of a scripted answer: one JSON body, or the events of a streamed message."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from escalation.rehearsal.drills.scenario import Reply

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


def error_body(status: int, message: str) -> dict[str, Any]:
    error_type = ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": error_type, "message": message}}


def message_body(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    usage = usage_of(reply, request)
    return {**_envelope(request, usage), "content": _content(reply), "stop_reason": _stop(reply)}


def stream_events(reply: Reply, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage = usage_of(reply, request)
    yield {
        "type": "message_start",
        "message": {**_envelope(request, {**usage, "output_tokens": 1}), "stop_reason": None},
    }
    for index, block in enumerate(_content(reply)):
        yield from _block_events(index, block)
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _stop(reply), "stop_sequence": None},
        "usage": usage,
    }
    yield {"type": "message_stop"}


def usage_of(reply: Reply, request: dict[str, Any]) -> dict[str, int]:
    """What the scenario says, else an estimate from the real size of question and answer."""
    said = reply.say + "".join(json.dumps(dict(call.input)) for call in reply.calls)
    return {
        "input_tokens": len(json.dumps(request)) // CHARACTERS_PER_TOKEN,
        "output_tokens": max(1, len(said) // CHARACTERS_PER_TOKEN),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        **reply.usage,
    }


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


def _content(reply: Reply) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": reply.say}] if reply.say else []
    calls = [
        {
            "type": "tool_use",
            "id": f"toolu_{uuid.uuid4().hex}",
            "name": call.tool,
            "input": dict(call.input),
        }
        for call in reply.calls
    ]
    return text + calls


def _stop(reply: Reply) -> str:
    return "tool_use" if reply.calls else "end_turn"


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
