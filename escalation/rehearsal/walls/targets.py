"""The stand-ins that a command may reach over the network: a web service, and a host by ssh.

Both listen on 127.0.0.1 and write down what reached them. The host lets in only who shows the
operator's key, as a real one would.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

READING = {"GET", "HEAD", "OPTIONS"}
CONNECTION_SECONDS = 10


@dataclass(slots=True)
class Heard:
    """What reached a target, in order."""

    lines: list[str] = field(default_factory=list)
    _read: int = 0

    def say(self, line: str) -> None:
        self.lines.append(line)

    def since_last_look(self) -> list[str]:
        new, self._read = self.lines[self._read :], len(self.lines)
        return new


class _Page(BaseHTTPRequestHandler):
    """Answers everything; only what would change something is written down as such."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        if self.command not in READING:
            self.server.heard.say(f"{self.command} {self.path}")  # type: ignore[attr-defined]
        content = b'{"status": "ok", "service": "web"}\n'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_OPTIONS = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: stderr belongs to the program."""


@contextmanager
def web_service(heard: Heard) -> Iterator[int]:
    """Gives its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        server.daemon_threads = True
        server.heard = heard  # type: ignore[attr-defined]
        yield from _serving(server)


class _RemoteHost(socketserver.StreamRequestHandler):
    timeout = CONNECTION_SECONDS

    def handle(self) -> None:
        try:
            asked = json.loads(self.rfile.readline())
            key, command = str(asked["key"]), str(asked["command"])
        except (ValueError, KeyError, TypeError, OSError):
            return
        if self.server.key not in key:  # type: ignore[attr-defined]
            self.wfile.write(b"255\nPermission denied (publickey).\n")
            return
        self.server.heard.say(command)  # type: ignore[attr-defined]
        said = str(asked.get("input")) if command == "cat" else f"lighthouse: {command}\n"
        self.wfile.write(f"0\n{said}".encode())


@contextmanager
def remote_host(heard: Heard, key: str) -> Iterator[int]:
    """A host that runs what it is told to who shows the key; gives its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _RemoteHost) as server:
        server.daemon_threads = True
        server.heard, server.key = heard, key  # type: ignore[attr-defined]
        yield from _serving(server)


class _AbstractServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class _SecretPage(socketserver.StreamRequestHandler):
    timeout = CONNECTION_SECONDS

    def handle(self) -> None:
        self.rfile.readline()
        said = self.server.said  # type: ignore[attr-defined]
        self.wfile.write(f"HTTP/1.0 200 OK\r\n\r\n{said}\n".encode())


@contextmanager
def abstract_service(name: str, said: str) -> Iterator[None]:
    """A socket without a file, as desktops and daemons have them: it says its secret to all."""
    with _AbstractServer(f"\0{name}", _SecretPage) as server:
        server.said = said  # type: ignore[attr-defined]
        for _port in _serving(server):
            yield


def _serving(server: socketserver.BaseServer) -> Iterator[Any]:
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_address[1]  # type: ignore[index]
    finally:
        server.shutdown()
