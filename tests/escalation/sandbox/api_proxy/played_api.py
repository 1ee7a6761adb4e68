"""A simulated upstream API on a real socket, which can break off its answers."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from escalation.sandbox.api_proxy import ApiAddress, Upstream

KEY = "sk-real-key-that-nobody-may-see"
USAGE = {
    "input_tokens": 11,
    "output_tokens": 22,
    "cache_read_input_tokens": 33,
    "cache_creation_input_tokens": 44,
}


def upstream_at(port: int, **changes) -> Upstream:
    return Upstream(
        **{
            "address": ApiAddress(host="127.0.0.1", port=port),
            "secure": False,
            "variable": "ANTHROPIC_API_KEY",
            "headers": {"x-api-key": KEY},
            **changes,
        }
    )


@dataclass
class Seen:
    """One request as it arrived."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class PlayedApi:
    port: int
    requests: list[Seen] = field(default_factory=list)
    connections: int = 0
    client_left: threading.Event = field(default_factory=threading.Event)


Script = Callable[[socket.socket, "PlayedApi"], None]


@contextmanager
def played_api(script: Script) -> Iterator[PlayedApi]:
    """Every request of every connection is answered by the script; an error ends the connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        api = PlayedApi(port=listener.getsockname()[1])
        threading.Thread(target=_accept, args=(listener, api, script), daemon=True).start()
        yield api
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, api: PlayedApi, script: Script) -> None:
    while True:
        try:
            connection, _address = listener.accept()
        except OSError:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        api.connections += 1
        threading.Thread(target=_serve, args=(connection, api, script), daemon=True).start()


def _serve(connection: socket.socket, api: PlayedApi, script: Script) -> None:
    granted_mounts = getattr(script, "granted_mounts", lambda plain: plain)
    try:
        connection = granted_mounts(connection)
    except OSError:
        return connection.close()
    with connection, connection.makefile("rb") as reader:
        try:
            while request := read_request(reader):
                api.requests.append(request)
                script(connection, api)
        except (OSError, ValueError):
            return


def read_request(reader) -> Seen | None:
    line = reader.readline().decode().strip()
    if not line:
        return None
    headers = {}
    while header := reader.readline().decode().strip():
        name, _colon, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return Seen(line, headers, reader.read(int(headers.get("content-length", 0))))


def head(status: int = 200, *headers: str, kind: str = "text/event-stream") -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"content-type: {kind}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
CHUNKED = "transfer-encoding: chunked"


def event(kind: str, **content) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **content})}\n\n".encode()


def message_start(model: str = "claude-haiku-4-5-20251001", **usage) -> bytes:
    return event("message_start", message={"model": model, "usage": {**USAGE, **usage}})


STREAM = (
    message_start(output_tokens=1),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"}),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 22}),
    event("message_stop"),
)


def answer_well(connection: socket.socket, _api: PlayedApi) -> None:
    connection.sendall(head(200, CHUNKED))
    for piece in STREAM:
        connection.sendall(chunk(piece))
    connection.sendall(LAST_CHUNK)


def answer_json(connection: socket.socket, _api: PlayedApi) -> None:
    body = json.dumps({"type": "message", "model": "claude-haiku-4-5", "usage": USAGE}).encode()
    connection.sendall(head(200, f"content-length: {len(body)}", kind="application/json") + body)


def answer_error(status: int, *headers: str) -> Script:
    def script(connection: socket.socket, _api: PlayedApi) -> None:
        body = json.dumps({"type": "error", "error": {"message": "no"}}).encode()
        length = f"content-length: {len(body)}"
        connection.sendall(head(status, length, *headers, kind="application/json") + body)

    return script


def reset(connection: socket.socket) -> None:
    """End a connection so that the other side sees a fault and no end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise ConnectionAbortedError
