"""Connections to the real API, kept open between requests, and one exchange over one of them."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Generator, Mapping
from contextlib import suppress
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead

from escalation.errors import CannotRun, WhyNot
from escalation.gateway.upstream import Upstream

CONNECT_SECONDS = 15.0
# How long an answer may take is the CLI's business; this ends what even the CLI has forgotten.
SILENCE_SECONDS = 1800.0
KEPT_OPEN = 16
PIECE_BYTES = 64 * 1024
# What reaching the other side may raise.
FAULTS = (OSError, HTTPException)
Pieces = Generator[bytes, None, None]


class Connections:
    """A pool, with a TLS context that is there before the first request waits for it."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._tls = _tls_context(upstream.extra_certificates) if upstream.secure else None
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._closed = False

    def kept(self) -> HTTPConnection | None:
        """An idle one that the other side has not closed meanwhile."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if _is_quiet(connection):
                return connection
            connection.close()

    def new(self) -> HTTPConnection:
        """Not connected yet."""
        upstream = self._upstream
        address = upstream.proxy.address if upstream.proxy else upstream.address
        if self._tls is None:
            return HTTPConnection(address.host, address.port, timeout=CONNECT_SECONDS)
        connection = HTTPSConnection(
            address.host, address.port, timeout=CONNECT_SECONDS, context=self._tls
        )
        if upstream.proxy:
            connection.set_tunnel(
                upstream.address.host, upstream.address.port, upstream.proxy.headers
            )
        return connection

    def keep(self, connection: HTTPConnection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < KEPT_OPEN:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def target(self, path: str) -> str:
        """As it stands in the request line: a plain proxy wants the whole address."""
        upstream = self._upstream
        if upstream.proxy and not upstream.secure:
            host = (
                f"[{upstream.address.host}]"
                if ":" in upstream.address.host
                else (upstream.address.host)
            )
            return f"http://{host}:{upstream.address.port}{upstream.prefix}{path}"
        return upstream.prefix + path

    @property
    def headers(self) -> dict[str, str]:
        """Put on every request; the proxy's own are for a plain one, a tunnel has got them."""
        upstream = self._upstream
        plain_proxy = upstream.proxy.headers if upstream.proxy and not upstream.secure else {}
        return {**upstream.headers, **plain_proxy}


class Exchange:
    """One request and its answer. `cut` may come from another thread, at any moment."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        # Held apart: a connection lets go of its socket when the answer says that it will close.
        self._socket: socket.socket | None = None
        self._answer: HTTPResponse | None = None
        self._finished = False
        self.is_cut = False

    def ask(self, path: str, headers: Mapping[str, str], body: bytes) -> HTTPResponse:
        """One that was kept open may have been closed just now: then a new one is asked."""
        if kept := self._connections.kept():
            try:
                return self._ask(kept, path, headers, body)
            except (ConnectionError, ssl.SSLEOFError):
                kept.close()
        return self._ask(self._connections.new(), path, headers, body)

    def _ask(
        self, connection: HTTPConnection, path: str, headers: Mapping[str, str], body: bytes
    ) -> HTTPResponse:
        self._connection = connection
        if connection.sock is None:
            connection.connect()
        sock: socket.socket = connection.sock
        sock.settimeout(SILENCE_SECONDS)
        with self._lock:
            if self.is_cut:
                raise ConnectionAbortedError("the client has gone")
            self._socket = sock
        connection.putrequest("POST", self._connections.target(path), skip_accept_encoding=True)
        for name, value in {**headers, **self._connections.headers}.items():
            connection.putheader(name, value)
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        self._answer = connection.getresponse()
        return self._answer

    def pieces(self, answer: HTTPResponse) -> Pieces:
        """As they come, without waiting for more; an end that comes too early is an error."""
        while answer.length != 0 and (piece := answer.read1(PIECE_BYTES)):
            if answer.length == 0:
                self._finish(answer)
            yield piece
        if answer.length:
            raise IncompleteRead(b"", answer.length)
        self._finish(answer)

    def _finish(self, answer: HTTPResponse) -> None:
        """The connection is free again before the last piece goes on: whoever has that may ask for
        the next one at once."""
        self._finished = not answer.will_close
        answer.close()
        self.close()

    def cut(self) -> None:
        with self._lock:
            self.is_cut = True
            if self._socket is not None:
                with suppress(OSError):
                    # Not the TLS layer's own `shutdown`, which takes it away from its reader.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._socket = None
            connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._finished and not self.is_cut:
            return self._connections.keep(connection)
        if self._answer is not None:
            self._answer.close()
        connection.close()


def _is_quiet(connection: HTTPConnection) -> bool:
    """Between two answers nothing is to be read but an end."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN | select.POLLRDHUP)
    return not poll.poll(0)


@lru_cache
def _tls_context(extra_certificates: str) -> ssl.SSLContext:
    """Dear: all authorities of the system are read. One serves every run of this process."""
    context = ssl.create_default_context()
    if extra_certificates:
        try:
            context.load_verify_locations(extra_certificates)
        except OSError as problem:
            raise CannotRun(
                f"NODE_EXTRA_CA_CERTS names {extra_certificates}, which cannot be read: "
                f"{problem.strerror or problem}.",
                WhyNot.WAY_TO_THE_API,
            ) from None
    return context
