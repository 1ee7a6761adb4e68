"""A Unix socket in front of that of a Docker engine, which passes what a tier may request.

Each connection carries one request and one decision: every answer closes the connection, so no
second request can follow an allowed one. Requests are parsed and written again for the engine.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

import h11

from escalation.sandbox.broker import PIECE_BYTES, Headers, Relay
from escalation.sandbox.command_runner import connect_to, listening_at
from escalation.sandbox.docker_rules import (
    AmbiguousRequest,
    DockerRequest,
    Rules,
    body_kind,
    is_hijacked,
    parse_request,
    read_json,
)

PROJECT = "com.docker.compose.project"
ASK_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnContainer:
    """The description of this container by the engine."""

    id: str
    project: str = ""
    sources: frozenset[str] = frozenset()
    """Names of volumes and directories of the host that hold files of this installation."""


class OwnContainers:
    """Finds the containers of this installation: its own and those of its compose project.

    The engine is queried, because a container can be named by name, id or beginning of the id. A
    container that cannot be identified counts as own. `name` is the beginning of the id of this
    container, empty outside a container; `places` are paths of the installation inside it.
    """

    def __init__(
        self, name: str, places: tuple[str, ...], connected: Callable[[], socket.socket]
    ) -> None:
        self._name = name
        self._places = places
        self._connected = connected
        self._lock = threading.Lock()
        self._known: OwnContainer | None = None

    def contains(self, container: str) -> bool:
        """Return whether a name or id is an own container; raise AmbiguousRequest if unknown."""
        own = self._own() if self._name else None
        found = self._inspected(container) if own else None
        if own is None or found is None:
            return False
        return found.get("Id") == own.id or _is_in_project(found, own)

    def has_source(self, source: str) -> bool:
        """Return whether a volume, or a directory of the host, belongs to this installation."""
        own = self._own() if self._name else None
        if own is None:
            return False
        if source.startswith("/"):
            return any(_overlap(source, path) for path in own.sources if path.startswith("/"))
        in_project = bool(own.project) and source.startswith(f"{own.project}_")
        return source in own.sources or in_project

    def _own(self) -> OwnContainer | None:
        """Return None if the engine does not know this container: it runs on another host."""
        with self._lock:
            if self._known is None and (found := self._inspected(self._name)):
                self._known = _own(found, self._places)
            return self._known

    def _inspected(self, container: str) -> dict[str, Any] | None:
        try:
            wire = self._connected()
            wire.settimeout(ASK_SECONDS)
            connection = HTTPConnection("docker")
            connection.sock = wire
            with wire:
                connection.request("GET", f"/containers/{quote(container, safe='')}/json")
                answer = connection.getresponse()
                content = answer.read()
            if answer.status == 404:
                return None
            found = json.loads(content)
        except (OSError, HTTPException, ValueError) as problem:
            raise AmbiguousRequest(
                f"the engine does not identify the container ({problem})"
            ) from None
        if answer.status != 200 or not isinstance(found, dict) or not found.get("Id"):
            raise AmbiguousRequest("the engine does not identify the container")
        return found


def _own(found: dict[str, Any], places: tuple[str, ...]) -> OwnContainer:
    mounts = [
        mount
        for mount in found.get("Mounts") or []
        if any(_overlap(str(mount.get("Destination")), place) for place in places)
    ]
    sources = {str(mount.get("Name") or mount.get("Source") or "") for mount in mounts}
    return OwnContainer(
        id=str(found["Id"]), project=_project(found), sources=frozenset(sources - {""})
    )


def _overlap(one: str, other: str) -> bool:
    """Return whether one path is inside the other, or the same."""
    first, second = (f"{os.path.normpath('/' + path.lstrip('/'))}/" for path in (one, other))
    return first.startswith(second) or second.startswith(first)


def _project(found: dict[str, Any]) -> str:
    labels = (found.get("Config") or {}).get("Labels") or {}
    return str(labels.get(PROJECT) or "")


def _is_in_project(found: dict[str, Any], own: OwnContainer) -> bool:
    return bool(own.project) and _project(found) == own.project


logger = logging.getLogger(__name__)
Engine = Path | tuple[str, int]
"""A socket, or host and port."""
DEFAULT_SOCKET = "/var/run/docker.sock"
WAITING = 256
HEAD_SECONDS = 30.0
CONNECT_SECONDS = 10.0
MAX_HEAD_BYTES = 128 * 1024
MAX_JUDGED_BYTES = 4 * 1024 * 1024

# Temporary shortages: the next client may succeed.
PASSING_FAULTS = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
    *(errno.ECONNABORTED, errno.EINTR),
)
LENGTHS = (b"transfer-encoding", b"content-length")
# Headers of one connection, or written again.
NOT_PASSED = {
    *(b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"expect", b"host"),
    *(b"proxy-connection", b"proxy-authorization", *LENGTHS),
}


def engine_socket(environment: Mapping[str, str]) -> Path | None:
    """Return the socket that the operator's docker client uses; None if there is none."""
    host = environment.get("DOCKER_HOST") or f"unix://{DEFAULT_SOCKET}"
    path = Path(host.removeprefix("unix://"))
    return path if host.startswith("unix:///") and path.is_socket() else None


def _with_real(places: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths as written and resolved."""
    return (*places, *map(os.path.realpath, places))


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
        # The socket of the engine would bypass the filter.
        places = (*hidden, *([str(engine)] if isinstance(engine, Path) else []))
        own = OwnContainers(own_container, _with_real(hidden), lambda: _connected(engine))
        self._rules = Rules(
            level=level,
            hidden=_with_real(places),
            is_own_container=own.contains,
            is_own_source=own.has_source,
        )
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()

    @contextmanager
    def serving(self) -> Iterator[Path]:
        """Serve in the block; then remove the socket and close all connections."""
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
            _Exchange(client, self._engine, self._rules).answer()
        except (OSError, h11.ProtocolError) as problem:
            logger.debug("A request to Docker ended early: %s", problem)
        except Exception:
            logger.exception("Could not decide on a Docker request; it was not passed on")
        finally:
            self._forget(client)

    def _forget(self, client: socket.socket) -> None:
        client.close()
        with self._changed:
            self._sockets.discard(client)
            self._changed.notify_all()


class _Exchange:
    """One connection with one request."""

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
            return self._refuse(400, f"the request cannot be read: {problem}")
        if not isinstance(request, h11.Request):
            return None
        self._is_head = request.method == b"HEAD"
        try:
            asked, body = self._check(request)
        except AmbiguousRequest as problem:
            return self._refuse(400, f"the request cannot be read: {problem}")
        except _Refused as refusal:
            return self._refuse(403, str(refusal))
        return self._pass_on(request, asked, body)

    def _check(self, request: h11.Request) -> tuple[DockerRequest, bytes | None]:
        """Return the parsed request and the body, if it was read; raise if it is refused."""
        names = [name for name, _value in request.headers]
        if b"content-length" in names and b"transfer-encoding" in names:
            raise AmbiguousRequest("it states its length twice")
        asked = parse_request(request.method.decode(), request.target.decode("latin-1"))
        body = None
        # First without the body: a refused client need not send it.
        self._refuse_forbidden(asked)
        if body_kind(asked):
            content = read_json(self._body())
            asked = replace(asked, body=content)
            self._refuse_forbidden(asked)
            body = json.dumps(content).encode() if content else b""
        return asked, body

    def _refuse_forbidden(self, asked: DockerRequest) -> None:
        if objection := self._rules.objection(asked):
            raise _Refused(objection)

    def _body(self) -> bytes:
        self._continue_body()
        content = bytearray()
        while True:
            try:
                event = self._next()
            except h11.RemoteProtocolError as problem:
                raise AmbiguousRequest(str(problem)) from None
            if isinstance(event, h11.Data):
                content += event.data
                if len(content) > MAX_JUDGED_BYTES:
                    raise AmbiguousRequest("the body is too long")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(content)
            else:
                raise AmbiguousRequest("the body ends too early")

    def _continue_body(self) -> None:
        if self._wire.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._client.sendall(self._wire.send(go_on) or b"")

    def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            self._wire.receive_data(self._client.recv(PIECE_BYTES))
        return event

    def _pass_on(self, request: h11.Request, asked: DockerRequest, body: bytes | None) -> None:
        try:
            engine = _connected(self._engine)
        except OSError as problem:
            return self._refuse(502, f"no Docker engine here: {problem.strerror or problem}")
        self._continue_body()
        with engine:
            relay = Relay(self._client, self._wire, engine)
            relay.ask(asked.method, asked.target, _headers_for(request, asked, body), body)
            relay.run()

    def _refuse(self, status: int, message: str) -> None:
        """Answer in the engine's format, so that the docker client prints the message."""
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
        """Read on for a moment: a client that still sends would not read the answer."""
        self._client.settimeout(2)
        for _piece in range(256):
            if not self._client.recv(PIECE_BYTES):
                return


class _Refused(Exception):
    """The rules of the tier refuse the request."""


def _headers_for(request: h11.Request, asked: DockerRequest, body: bytes | None) -> Headers:
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


# Names of containers by id, so that limits on restarts count a container once.

LOOK_UP_SECONDS = 2.0
MAX_BYTES = 8 * 1024 * 1024
LIST = "/containers/json?all=1"
_ID = re.compile(r"[0-9a-f]{1,64}")


def may_be_id(word: str) -> bool:
    return bool(_ID.fullmatch(word))


def names_of(engine: Path | None, words: Iterable[str]) -> dict[str, str]:
    """Return the names of those words that are container ids; none if the engine fails."""
    ids = sorted(filter(may_be_id, set(words)))
    if engine is None or not ids:
        return {}
    try:
        containers = _listed(engine)
    except (OSError, ValueError, HTTPException):
        return {}
    found = {word: name_behind(word, containers) for word in ids}
    return {word: name for word, name in found.items() if name}


def name_behind(word: str, containers: Mapping[str, str]) -> str:
    """Resolve a word as the engine does: a name, or the beginning of exactly one id.

    `containers` maps names to ids.
    """
    if word in containers:
        return word
    meant = [name for name, number in containers.items() if number.startswith(word)]
    return meant[0] if len(meant) == 1 else ""


class _EngineConnection(HTTPConnection):
    def __init__(self, engine: Path) -> None:
        super().__init__("docker", timeout=LOOK_UP_SECONDS)
        self._engine = engine

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LOOK_UP_SECONDS)
        connect_to(self.sock, self._engine)


def _listed(engine: Path) -> dict[str, str]:
    with closing(_EngineConnection(engine)) as connection:
        connection.request("GET", LIST)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"the engine answers {answer.status}")
        rows = json.loads(answer.read(MAX_BYTES))
    if not isinstance(rows, list):
        raise ValueError("the engine lists no containers")
    return {
        name.removeprefix("/"): row["Id"]
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("Id"), str)
        for name in row.get("Names") or ()
        if isinstance(name, str) and "/" not in name.removeprefix("/")
    }
