"""The other side of the CLI's API, on 127.0.0.1: what every server that plays it has in common."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from escalation.agent.message_stream import Answer, error_body, message_body, stream_events

# With what the CLI opens the conversations in which it wakes its subagents up, before any work.
WARM_UP = "Warmup"


def is_auxiliary(request: dict[str, Any]) -> bool:
    """Whether the CLI asks for its own sake: titles, the parts of a command, warming up.

    Such calls come at any moment, more of them in some versions than in others, and are no part of
    the conversation: they offer no tools, or open with the one word of a warm-up.
    """
    return not request.get("tools") or opening_words(request) == WARM_UP


def opening_words(request: dict[str, Any]) -> str:
    """The words alone: cache marks and the CLI's own reminders change from call to call."""
    opening = request.get("messages") or [{}]
    content = opening[0].get("content") if isinstance(opening[0], dict) else None
    blocks = content if isinstance(content, list) else [{"text": content}]
    texts = [str(block.get("text")) for block in blocks if isinstance(block, dict)]
    return "\n".join(text for text in texts if not text.startswith("<system-reminder>"))


@contextmanager
def serve_messages(handler: type[MessagesHandler], player: Any, port: int = 0) -> Iterator[int]:
    """Run a server whose handlers find the player in `self.player`; gives the port."""
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
    """Reads a request and sends an answer; what to answer is left to `answer_to`."""

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
        self.send_error_body(404, "only messages are played")

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: stderr belongs to the program."""

    def send_error_body(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._send_json(status, error_body(status, message), headers)

    def send_answer(self, answer: Answer, request: dict[str, Any], pace: float = 0) -> bool:
        """Whether it went out whole: a CLI that is stopped hangs up in the middle."""
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

    def _send_stream(self, answer: Answer, request: dict[str, Any], pace: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in stream_events(answer, request):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
            time.sleep(pace)
