"""A scripted Messages API on 127.0.0.1, for the probe of a binary and for drills.

Answers are sent as one JSON body or as a stream of events.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
class ScriptedToolCall:
    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptedAnswer:
    """One answer of the model with its usage."""

    say: str = ""
    calls: tuple[ScriptedToolCall, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)


def error_body(status: int, message: str) -> dict[str, Any]:
    error_type = ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": error_type, "message": message}}


def message_body(answer: ScriptedAnswer, request: dict[str, Any]) -> dict[str, Any]:
    usage = usage_of(answer, request)
    return {**_envelope(request, usage), "content": _content(answer), "stop_reason": _stop(answer)}


def stream_events(answer: ScriptedAnswer, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage = usage_of(answer, request)
    # The output tokens are only known at the end.
    first_usage = {**usage, "output_tokens": min(1, usage["output_tokens"])}
    yield {
        "type": "message_start",
        "message": {**_envelope(request, first_usage), "stop_reason": None},
    }
    for index, block in enumerate(_content(answer)):
        yield from _block_events(index, block)
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _stop(answer), "stop_sequence": None},
        "usage": usage,
    }
    yield {"type": "message_stop"}


def usage_of(answer: ScriptedAnswer, request: dict[str, Any]) -> dict[str, int]:
    """Return the scripted usage, or an estimate from the size of request and answer."""
    said = answer.say + "".join(json.dumps(dict(call.input)) for call in answer.calls)
    return {
        **NO_USAGE,
        "input_tokens": len(json.dumps(request)) // CHARACTERS_PER_TOKEN,
        "output_tokens": max(1, len(said) // CHARACTERS_PER_TOKEN),
        **answer.usage,
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


def _content(answer: ScriptedAnswer) -> list[dict[str, Any]]:
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


def _stop(answer: ScriptedAnswer) -> str:
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


# The first message of conversations in which the CLI warms up its subagents.
WARM_UP = "Warmup"


def is_auxiliary(request: dict[str, Any]) -> bool:
    """Return whether a call is not part of the conversation: titles, command prefixes, warm-up.

    Such calls come at any time and differ by version. They offer no tools, or are a warm-up.
    """
    return not request.get("tools") or opening_words(request) == WARM_UP


def opening_words(request: dict[str, Any]) -> str:
    """Return the first message without cache marks and reminders, which change between calls."""
    opening = request.get("messages") or [{}]
    content = opening[0].get("content") if isinstance(opening[0], dict) else None
    blocks = content if isinstance(content, list) else [{"text": content}]
    texts = [str(block.get("text")) for block in blocks if isinstance(block, dict)]
    return "\n".join(text for text in texts if not text.startswith("<system-reminder>"))


@contextmanager
def serve_messages(handler: type[MessagesHandler], player: Any, port: int = 0) -> Iterator[int]:
    """Run a server whose handlers have the player as `self.player`; yield the port."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    server.player = player  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class MessagesHandler(BaseHTTPRequestHandler):
    """Reads requests; subclasses answer them in `answer_to`."""

    protocol_version = "HTTP/1.1"

    @property
    def player(self) -> Any:
        return self.server.player  # type: ignore[attr-defined]

    def answer_to(self, request: dict[str, Any]) -> None:
        raise NotImplementedError

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            request = json.loads(content)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            return self.send_error_body(400, "the request is not a JSON object")
        if "count_tokens" in self.path:
            return self._send_json(200, {"input_tokens": len(content) // 4})
        return self.answer_to(request)

    def do_GET(self) -> None:
        self.send_error_body(404, "only messages are served")

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: stderr belongs to the program."""

    def send_error_body(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._send_json(status, error_body(status, message), headers)

    def send_answer(self, answer: ScriptedAnswer, request: dict[str, Any], pace: float = 0) -> bool:
        """Return False if the CLI closed the connection before the end."""
        try:
            if request.get("stream"):
                self._send_stream(answer, request, pace)
            else:
                self._send_json(200, message_body(answer, request))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def _send_json(
        self, status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_stream(self, answer: ScriptedAnswer, request: dict[str, Any], pace: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in stream_events(answer, request):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
            time.sleep(pace)
