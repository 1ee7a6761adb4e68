"""A scripted Messages API on 127.0.0.1: the model's side of a drill.

The address carries all there is to know, so one server can play any number of conversations:
`http://127.0.0.1:PORT/<scenario>/tier/<n>/run/<key>` is the base URL of one run. Within a run the
main conversation gets the tier's replies in order; any other conversation (a subagent) gets the
scenario's asides. Every request is kept, in memory and, where a file is named, on disk.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from escalation.rehearsal.drills.message_stream import (
    error_body,
    message_body,
    stream_events,
    usage_of,
)
from escalation.rehearsal.drills.scenario import Reply, Scenario

RUN_PATH = re.compile(r"^/(?P<scenario>[\w-]+)/tier/(?P<tier>\d+)/run/(?P<run>[\w-]+)/")
LAST_WORD = Reply(say="There is nothing more to add.")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRequest:
    """One request as the model's side saw it."""

    scenario: str
    tier: int
    run: str
    main: bool
    body: dict[str, Any]

    def text(self) -> str:
        """All messages as one string, for looking up what the conversation holds."""
        return json.dumps(self.body.get("messages", []), ensure_ascii=False)


@dataclass(slots=True)
class RunState:
    """How far one run has come in its script."""

    main_key: str = ""
    served: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})


class ScriptedApi:
    """The server and its memory. Use `serving()` to run it."""

    def __init__(self, *scenarios: Scenario, request_log: Path | None = None) -> None:
        self.scenarios = {scenario.name: scenario for scenario in scenarios}
        self.requests: list[KeptRequest] = []
        self._request_log = request_log
        self._runs: dict[tuple[str, int, str], RunState] = {}
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    def base_url(self, scenario: str, tier: int, run: str = "1") -> str:
        assert self._server is not None, "the scripted API is not running"
        port = self._server.server_address[1]
        return f"http://127.0.0.1:{port}/{scenario}/tier/{tier}/run/{run}"

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[ScriptedApi]:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._server.daemon_threads = True
        self._server.scripted_api = self  # type: ignore[attr-defined]
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, scenario: str, tier: int, run: str, body: dict[str, Any]) -> Reply:
        """Keep the request and choose what to say to it."""
        with self._lock:
            state = self._runs.setdefault((scenario, tier, run), RunState())
            key = conversation_key(body)
            state.main_key = state.main_key or key
            main = key == state.main_key
            position = state.served[main]
            state.served[main] += 1
            self._keep(KeptRequest(scenario=scenario, tier=tier, run=run, main=main, body=body))
        played = self.scenarios[scenario]
        return reply_at(played.replies_for(tier) if main else played.aside, position)

    def note_served(self, tier: int, run: str, usage: dict[str, int]) -> None:
        """An answer went out whole, so this much was used."""
        with self._lock:
            self._log({"tier": tier, "run": run, "served": usage})

    def _keep(self, request: KeptRequest) -> None:
        self.requests.append(request)
        self._log({"tier": request.tier, "run": request.run, "body": request.body})

    def _log(self, entry: dict[str, Any]) -> None:
        if self._request_log is not None:
            with self._request_log.open("a") as log:
                log.write(json.dumps(entry) + "\n")


def conversation_key(body: dict[str, Any]) -> str:
    """Two requests belong to one conversation when they open with the same words.

    The words alone: cache marks and the CLI's own reminders change from call to call.
    """
    opening = body.get("messages") or [{}]
    content = opening[0].get("content") if isinstance(opening[0], dict) else None
    blocks = content if isinstance(content, list) else [{"text": content}]
    texts = [str(block.get("text")) for block in blocks if isinstance(block, dict)]
    return "\n".join(text for text in texts if not text.startswith("<system-reminder>"))


def reply_at(replies: tuple[Reply, ...], position: int) -> Reply:
    for reply in replies:
        if position < reply.times:
            return reply
        position -= reply.times
    return LAST_WORD


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        api = cast(ScriptedApi, self.server.scripted_api)  # type: ignore[attr-defined]
        address = RUN_PATH.match(self.path)
        if address is None or address["scenario"] not in api.scenarios:
            return self._send_json(404, error_body(404, f"nothing is scripted at {self.path}"))
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return self._send_json(400, error_body(400, "the request is not a JSON object"))
        if "count_tokens" in self.path:
            return self._send_json(200, {"input_tokens": len(content) // 4})
        reply = api.answer(address["scenario"], int(address["tier"]), address["run"], body)
        time.sleep(reply.delay)
        if reply.error:
            return self._send_json(reply.error, error_body(reply.error, reply.say or "scripted"))
        if not body.get("stream"):
            return self._send_json(200, message_body(reply, body))
        self._send_stream(reply, body)
        return api.note_served(int(address["tier"]), address["run"], usage_of(reply, body))

    def do_GET(self) -> None:
        self._send_json(404, error_body(404, "only messages are scripted"))

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the requests are kept, and stderr belongs to the program."""

    def _send_json(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_stream(self, reply: Reply, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for event in stream_events(reply, body):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
                time.sleep(reply.pace)
        except (BrokenPipeError, ConnectionResetError):
            return  # the CLI was stopped in the middle of an answer
