"""A Unix socket in front of a Docker engine's, which lets through what a tier may ask.

One connection is one request and one decision: every answer says that the connection closes, so
nothing can hide behind a request that was allowed. The request is parsed here and written anew for
the engine; not a byte of a head is passed on as it came.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import h11

from escalation.rooms.docker_relay import Headers, Relay
from escalation.rooms.docker_request import (
    Asked,
    NotClear,
    body_kind,
    is_hijacked,
    read_json,
    read_target,
)
from escalation.rooms.docker_rules import Rules
from escalation.rooms.own_containers import OwnContainers
from escalation.rooms.unix_socket import connect_to, listening_at

logger = logging.getLogger(__name__)
Engine = Path | tuple[str, int]
"""Its socket, or host and port."""
DEFAULT_SOCKET = "/var/run/docker.sock"
WAITING = 256
HEAD_SECONDS = 30.0
CONNECT_SECONDS = 10.0
MAX_HEAD_BYTES = 128 * 1024
MAX_JUDGED_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 64 * 1024
# Of a machine that is short of something: the next client may find more.
PASSING_FAULTS = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
    *(errno.ECONNABORTED, errno.EINTR),
)
LENGTHS = (b"transfer-encoding", b"content-length")
# What belongs to one connection, or is written anew.
NOT_PASSED = {
    *(b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"expect", b"host"),
    *(b"proxy-connection", b"proxy-authorization", *LENGTHS),
}


def engine_socket(environment: Mapping[str, str]) -> Path | None:
    """Where the operator's docker client would look; None if that is no socket here."""
    host = environment.get("DOCKER_HOST") or f"unix://{DEFAULT_SOCKET}"
    path = Path(host.removeprefix("unix://"))
    return path if host.startswith("unix:///") and path.is_socket() else None


class DockerFilter:
    def __init__(
        self,
        socket_path: Path,
        engine: Engine,
        level: int,
        *,
        hidden: tuple[str, ...] = (),
        own_container: str = "",
    ) -> None:
        self._path = socket_path
        self._engine = engine
        # The engine's own socket would be a way past us, under whatever name.
        places = (*hidden, *([str(engine)] if isinstance(engine, Path) else []))
        real = (os.path.realpath(place) for place in places)
        ours = OwnContainers(own_container, hidden, lambda: _connected(engine))
        self._rules = Rules(
            level=level,
            hidden=(*places, *real),
            is_ours=ours.holds,
            is_our_source=ours.has_source,
        )
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()

    @contextmanager
    def serving(self) -> Iterator[Path]:
        """Inside, the socket is there; afterwards it and every connection through it are gone."""
        with listening_at(self._path, WAITING) as listener:
            thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
            thread.start()
            try:
                yield self._path
            finally:
                self._path.unlink(missing_ok=True)
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()
                self._cut_all()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _address = listener.accept()
            except OSError as problem:
                if problem.errno not in PASSING_FAULTS:
                    return
                time.sleep(0.05)
                continue
            with self._changed:
                self._sockets.add(client)
            try:
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()
            except RuntimeError:
                self._forget(client)

    def _cut_all(self) -> None:
        with self._changed:
            for client in self._sockets:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._sockets, 5)

    def _serve(self, client: socket.socket) -> None:
        try:
            client.settimeout(HEAD_SECONDS)
            _Visit(client, self._engine, self._rules).answer()
        except (OSError, h11.ProtocolError) as problem:
            logger.debug("A request to Docker ended early: %s", problem)
        except Exception:
            logger.exception("A request to Docker could not be judged, and was not passed on")
        finally:
            self._forget(client)

    def _forget(self, client: socket.socket) -> None:
        client.close()
        with self._changed:
            self._sockets.discard(client)
            self._changed.notify_all()


class _Visit:
    """One connection: one request."""

    def __init__(self, client: socket.socket, engine: Engine, rules: Rules) -> None:
        self._client = client
        self._engine = engine
        self._rules = rules
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._is_head = False

    def answer(self) -> None:
        try:
            request = self._next()
        except h11.RemoteProtocolError as problem:
            return self._refuse(400, f"not a request that can be read: {problem}")
        if not isinstance(request, h11.Request):
            return None
        self._is_head = request.method == b"HEAD"
        try:
            asked, body = self._judged(request)
        except NotClear as problem:
            return self._refuse(400, f"not a request that can be read: {problem}")
        except _Refused as refusal:
            return self._refuse(403, str(refusal))
        return self._pass_on(request, asked, body)

    def _judged(self, request: h11.Request) -> tuple[Asked, bytes | None]:
        """The request in its plain form, with its body where that was read."""
        names = [name for name, _value in request.headers]
        if b"content-length" in names and b"transfer-encoding" in names:
            raise NotClear("its length is stated twice")
        asked = read_target(request.method.decode(), request.target.decode("latin-1"))
        body = None
        # Without a body first: who may not ask at all need not send one.
        self._object(asked)
        if body_kind(asked):
            content = read_json(self._body())
            asked = replace(asked, body=content)
            self._object(asked)
            body = json.dumps(content).encode() if content else b""
        return asked, body

    def _object(self, asked: Asked) -> None:
        if objection := self._rules.objection(asked):
            raise _Refused(objection)

    def _body(self) -> bytes:
        self._welcome_body()
        content = bytearray()
        while True:
            try:
                event = self._next()
            except h11.RemoteProtocolError as problem:
                raise NotClear(str(problem)) from None
            if isinstance(event, h11.Data):
                content += event.data
                if len(content) > MAX_JUDGED_BYTES:
                    raise NotClear("the body is too long")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(content)
            else:
                raise NotClear("the body ends too early")

    def _welcome_body(self) -> None:
        if self._wire.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._client.sendall(self._wire.send(go_on) or b"")

    def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            self._wire.receive_data(self._client.recv(PIECE_BYTES))
        return event

    def _pass_on(self, request: h11.Request, asked: Asked, body: bytes | None) -> None:
        try:
            engine = _connected(self._engine)
        except OSError as problem:
            words = problem.strerror or str(problem)
            return self._refuse(502, f"no Docker engine here: {words}")
        self._welcome_body()
        with engine:
            relay = Relay(self._client, self._wire, engine)
            relay.ask(asked.method, asked.target, _headers_for(request, asked, body), body)
            relay.run()

    def _refuse(self, status: int, message: str) -> None:
        """As the engine says it, so that the docker client prints it."""
        content = json.dumps({"message": message}).encode() + b"\n"
        headers: Headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        sent = self._wire.send(h11.Response(status_code=status, headers=headers)) or b""
        if not self._is_head:
            sent += self._wire.send(h11.Data(data=content)) or b""
        self._client.sendall(sent)
        self._client.shutdown(socket.SHUT_WR)
        self._discard()

    def _discard(self) -> None:
        """A client that still sends would not read our answer if we closed at once."""
        self._client.settimeout(2)
        for _piece in range(256):
            if not self._client.recv(PIECE_BYTES):
                return


class _Refused(Exception):
    """By the tier's rules."""


def _headers_for(request: h11.Request, asked: Asked, body: bytes | None) -> Headers:
    headers = [(name, value) for name, value in request.headers if name not in NOT_PASSED]
    framing = [
        pair for pair in request.headers if pair[0] in (b"transfer-encoding", b"content-length")
    ]
    if body is not None:
        framing = [(b"content-length", str(len(body)).encode())]
    upgrade = is_hijacked(asked) and any(name == b"upgrade" for name, _value in request.headers)
    connection = (
        [(b"connection", b"Upgrade"), (b"upgrade", b"tcp")]
        if upgrade
        else [(b"connection", b"close")]
    )
    return [(b"host", b"docker"), *headers, *framing, *connection]


def _connected(engine: Engine) -> socket.socket:
    if not isinstance(engine, Path):
        return socket.create_connection(engine, CONNECT_SECONDS)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connect_to(connection, engine)
    except OSError:
        connection.close()
        raise
    return connection
