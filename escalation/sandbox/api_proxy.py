"""The API proxy of one run: holds the key, passes requests of the tier's CLI, counts tokens."""

from __future__ import annotations

import base64
import hmac
import io
import json
import logging
import os
import re
import secrets
import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
    LineTooLong,
)
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from escalation.agent.api_request import (
    MAX_MODEL_LENGTH,
    MESSAGES,
    TARGETS,
    RequestPolicy,
    judge_message_request,
    known_headers,
    read_request,
)
from escalation.agent.messages_api import error_body
from escalation.agent.stream import LineSplitter, Tokens, tokens_in
from escalation.errors import CannotRun, WhyNot
from sessions_app.credentials import BASE_URL, CLOUDS, CUSTOM_HEADERS, KEYS

VENDOR = "https://api.anthropic.com"


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiAddress:
    host: str
    port: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Proxy:
    address: ApiAddress
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    address: ApiAddress
    secure: bool
    prefix: str = ""
    """The path of the base URL, without a trailing slash."""
    variable: str
    """The variable in which the CLI gets its token, the same as for the key."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Added to every request: the key and custom headers. Never shown."""
    proxy: Proxy | None = None
    no_proxy: str = ""
    """The NO_PROXY of the operator, which the CLI needs to reach the API proxy."""
    extra_certificates: str = ""
    """The file of NODE_EXTRA_CA_CERTS."""


def why_key_is_inside(environment: Mapping[str, str]) -> str:
    """Return the reason why the API proxy cannot hold the key; empty if it can."""
    for variable, name in CLOUDS.items():
        if environment.get(variable):
            return f"the key is inside: the CLI signs requests to {name} itself ({variable})"
    if not any(environment.get(variable) for variable in KEYS):
        return "no key is configured that the API proxy could hold"
    return ""


def upstream_from(environment: Mapping[str, str]) -> Upstream | None:
    """Return None if the key is inside; raise CannotRun for an invalid value."""
    if why_key_is_inside(environment):
        return None
    base = environment.get(BASE_URL) or VENDOR
    url = _url(BASE_URL, base)
    variable = next(name for name in KEYS if environment.get(name))
    address = _address(url)
    return Upstream(
        address=address,
        secure=url.scheme == "https",
        prefix=url.path.rstrip("/"),
        variable=variable,
        headers={**_credential(variable, environment[variable]), **_custom_headers(environment)},
        proxy=_proxy(environment, url.scheme, address),
        no_proxy=no_proxy(environment),
        extra_certificates=environment.get("NODE_EXTRA_CA_CERTS", ""),
    )


def _unusable(message: str) -> CannotRun:
    return CannotRun(message, WhyNot.WAY_TO_THE_API)


def _credential(variable: str, value: str) -> dict[str, str]:
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise _unusable(
            f"{variable} holds characters that are not allowed in a header: set it again."
        )
    if KEYS[variable].is_bearer:
        return {"authorization": f"Bearer {value}"}
    return {"x-api-key": value}


def _custom_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Parse one `Name: value` per line, as the CLI does; lines without a colon are ignored."""
    lines = environment.get(CUSTOM_HEADERS, "").splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    named = {name.strip().lower(): value.strip() for name, _colon, value in pairs}
    if any(
        not (name.isascii() and name.replace("-", "").replace("_", "").isalnum())
        or not (value.isascii() and (value.isprintable() or not value))
        for name, value in named.items()
    ):
        raise _unusable(f"{CUSTOM_HEADERS}: one `Name: value` per line, in ASCII.")
    return named


def _proxy(environment: Mapping[str, str], scheme: str, address: ApiAddress) -> Proxy | None:
    name = f"{scheme}_proxy"
    value = environment.get(name) or environment.get(name.upper())
    if not value or _is_excepted(address, no_proxy(environment)):
        return None
    url = _url(name.upper(), value if "://" in value else f"http://{value}")
    if url.scheme != "http":
        raise _unusable(f"{name.upper()}: only a proxy with an http:// address can be used.")
    headers = {}
    if url.username is not None:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(address=_address(url), headers=headers)


def no_proxy(environment: Mapping[str, str]) -> str:
    return environment.get("no_proxy") or environment.get("NO_PROXY") or ""


def _is_excepted(address: ApiAddress, exceptions: str) -> bool:
    for entry in exceptions.lower().replace(",", " ").split():
        name = entry.removesuffix(f":{address.port}").removeprefix("*").lstrip(".")
        if entry == "*" or address.host == name or (name and address.host.endswith(f".{name}")):
            return True
    return False


def _url(variable: str, value: str) -> SplitResult:
    """Parse an address; errors do not show the value, which may hold a password."""
    try:
        url = urlsplit(value.strip())
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        usable = usable and url.path.isascii() and (url.path + "x").isprintable()
    except ValueError:
        usable = False
    if not usable:
        raise _unusable(f"{variable} is not an address: write http://host:port or https://host.")
    return url


def _address(url: SplitResult) -> ApiAddress:
    assert url.hostname is not None
    return ApiAddress(host=url.hostname, port=url.port or (443 if url.scheme == "https" else 80))


# Connections to the API.

CONNECT_SECONDS = 15.0
# The CLI has its own time-out; this ends requests that it has abandoned.
SILENCE_SECONDS = 1800.0
KEPT_OPEN = 16
PIECE_BYTES = 64 * 1024
FAULTS = (OSError, HTTPException)
Pieces = Generator[bytes, None, None]


class Connections:
    """A connection pool whose TLS context is created before the first request."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._tls = _tls_context(upstream.extra_certificates) if upstream.secure else None
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._closed = False

    def kept(self) -> HTTPConnection | None:
        """Return an idle connection that the server has not closed, or None."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if _is_quiet(connection):
                return connection
            connection.close()

    def new(self) -> HTTPConnection:
        """Return a connection that is not connected yet."""
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
        """Return the request target: a plain HTTP proxy needs the whole address."""
        upstream = self._upstream
        if upstream.proxy and not upstream.secure:
            name = upstream.address.host
            host = f"[{name}]" if ":" in name else name
            return f"http://{host}:{upstream.address.port}{upstream.prefix}{path}"
        return upstream.prefix + path

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request, with those for a plain HTTP proxy (a tunnel sends its own)."""
        upstream = self._upstream
        plain_proxy = upstream.proxy.headers if upstream.proxy and not upstream.secure else {}
        return {**upstream.headers, **plain_proxy}


class UpstreamExchange:
    """One request and its answer. Any thread may call `cut`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        # Kept here: a connection drops its socket if the answer announces a close.
        self._socket: socket.socket | None = None
        self._answer: HTTPResponse | None = None
        self._finished = False
        self.is_cut = False

    def ask(self, path: str, headers: Mapping[str, str], body: bytes) -> HTTPResponse:
        """Send a request, again on a new connection if the kept one was just closed."""
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
                raise ConnectionAbortedError("the client has disconnected")
            self._socket = sock
        connection.putrequest("POST", self._connections.target(path), skip_accept_encoding=True)
        for name, value in {**headers, **self._connections.headers}.items():
            connection.putheader(name, value)
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        self._answer = connection.getresponse()
        return self._answer

    def pieces(self, answer: HTTPResponse) -> Pieces:
        """Yield data as it arrives; raise IncompleteRead if the answer ends too early."""
        while answer.length != 0 and (piece := answer.read1(PIECE_BYTES)):
            if answer.length == 0:
                self._finish(answer)
            yield piece
        if answer.length:
            raise IncompleteRead(b"", answer.length)
        self._finish(answer)

    def _finish(self, answer: HTTPResponse) -> None:
        """Free the connection before the last piece is passed on, for the next request."""
        self._finished = not answer.will_close
        answer.close()
        self.close()

    def cut(self) -> None:
        with self._lock:
            self.is_cut = True
            if self._socket is not None:
                with suppress(OSError):
                    # Not the `shutdown` of the TLS layer, which would disturb its reader.
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
    """Return whether the server has sent nothing, not even an end, since the last answer."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN | select.POLLRDHUP)
    return not poll.poll(0)


@lru_cache
def _tls_context(extra_certificates: str) -> ssl.SSLContext:
    """Create the context once per process, because it reads all system certificates."""
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


# Token usage of a run, counted by the proxy and appended to a file that survives the process. Each
# answer has a line when it starts (input tokens are charged from then on) and one when it ends,
# which replaces the first by name.

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """The usage of one answer."""

    model: str
    tokens: Tokens
    complete: bool
    """False while it streams or if it was cut off: the usage is then a lower bound."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spending:
    by_model: dict[str, Tokens] = field(default_factory=dict)
    answers: int = 0
    cut_off: int = 0
    """Answers without an end (yet): their true usage may be higher."""

    @property
    def tokens(self) -> Tokens:
        return sum(self.by_model.values(), Tokens())


class Ledger:
    """Counts answers and appends each to a file at once. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        # The file exists from the start: without one, nobody has counted the requests.
        try:
            append_line(path, b"")
        except OSError as problem:
            logger.warning("Could not create %s: %s", path, problem)
        # Complete answers are summed once, because every request needs the sum.
        answers = _read(path)
        self._settled = _sum(usage for usage in answers.values() if usage.complete)
        self._unsettled = {name: usage for name, usage in answers.items() if not usage.complete}

    @property
    def spending(self) -> Spending:
        with self._lock:
            return _sum(self._unsettled.values(), self._settled)

    def new_name(self) -> str:
        return secrets.token_hex(6)

    def note(self, name: str, usage: Usage) -> None:
        """Count an answer; a complete one is noted once, and last. A full disk is only logged."""
        entry = {"answer": name, "model": usage.model, "complete": usage.complete}
        line = json.dumps({**entry, **asdict(usage.tokens)}) + "\n"
        with self._lock:
            if usage.complete:
                self._unsettled.pop(name, None)
                self._settled = _sum([usage], self._settled)
            else:
                self._unsettled[name] = usage
            try:
                append_line(self._path, line.encode())
            except OSError as problem:
                logger.warning("Could not write the usage of an answer: %s", problem)


def read_ledger(path: Path) -> Spending:
    """Sum the file; incomplete and unknown lines are ignored."""
    return _sum(_read(path).values())


def append_line(path: Path, line: bytes) -> None:
    """Append a line, after a newline if the last line is incomplete."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        if line:
            os.write(descriptor, b"\n" * torn + line)
    finally:
        os.close(descriptor)


def _read(path: Path) -> dict[str, Usage]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    answers = {}
    for line in content.splitlines():
        if (entry := _entry(line)) is not None:
            name, usage = entry
            answers[name] = usage
    return answers


def _entry(line: bytes) -> tuple[str, Usage] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    name, model, complete = entry.get("answer"), entry.get("model"), entry.get("complete")
    if not isinstance(name, str) or not isinstance(model, str) or not isinstance(complete, bool):
        return None
    tokens = Tokens(**{kind: _count(entry.get(kind)) for kind in asdict(Tokens())})
    return name, Usage(model=model[:MAX_MODEL_LENGTH], tokens=tokens, complete=complete)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _sum(answers: Iterable[Usage], before: Spending = Spending()) -> Spending:  # noqa: B008 (frozen)
    by_model = dict(before.by_model)
    seen = list(answers)
    for usage in seen:
        by_model[usage.model] = by_model.get(usage.model, Tokens()) + usage.tokens
    return Spending(
        by_model=by_model,
        answers=before.answers + len(seen),
        cut_off=before.cut_off + sum(not usage.complete for usage in seen),
    )


# Usage of an answer, read while it passes. Nothing here raises for data of a server or grows with
# the length of an answer.

MAX_EVENT_BYTES = 1024 * 1024
MAX_BODY_BYTES = 16 * 1024 * 1024
_COUNTED = (b'"message_start"', b'"message_delta"', b'"message_stop"')
_TOOL_BLOCKS = (b'"content_block_start"', b'"content_block_delta"', b'"content_block_stop"')

OnCall = Callable[[str, str, Any], None]
"""Called with the id, the tool and the input of a call, before the CLI gets it."""


def ignore_call(call: str, tool: str, given: Any) -> None:
    """Do nothing with a call."""


class ToolCalls:
    """Reads the tool calls of one answer, from its stream or as a whole."""

    def __init__(self, on_call: OnCall) -> None:
        self._on_call = on_call
        self._open: dict[Any, tuple[str, str, list[str]]] = {}

    def read_event(self, event: dict[str, Any]) -> None:
        number = event.get("index")
        match event.get("type"):
            case "content_block_start":
                block = event.get("content_block")
                if isinstance(block, dict) and block.get("type") == "tool_use":
                    self._open[number] = (str(block.get("id")), str(block.get("name")), [])
            case "content_block_delta" if number in self._open:
                delta = event.get("delta")
                if isinstance(delta, dict):
                    self._open[number][2].append(str(delta.get("partial_json") or ""))
            case "content_block_stop" if number in self._open:
                call, tool, parts = self._open.pop(number)
                self._on_call(call, tool, _object("".join(parts).encode()))

    def read_message(self, message: dict[str, Any]) -> None:
        content = message.get("content")
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self._on_call(str(block.get("id")), str(block.get("name")), block.get("input"))


class Meter:
    """Reads the pieces of one answer; `usage` is the usage up to now."""

    def __init__(
        self,
        *,
        model: str,
        content_type: str,
        encoding: str = "",
        on_call: OnCall = ignore_call,
    ) -> None:
        self._model = model
        self._calls = ToolCalls(on_call)
        self._is_stream = content_type.strip().lower().startswith("text/event-stream")
        self._unpack = _unpacking(encoding)
        self._lines = LineSplitter(MAX_EVENT_BYTES)
        self._body = bytearray()
        self._stated: dict[str, Any] = {}
        self._complete = False

    @property
    def usage(self) -> Usage:
        return Usage(model=self._model, tokens=self.tokens, complete=self._complete)

    @property
    def tokens(self) -> Tokens:
        return tokens_in(self._stated)

    def feed(self, piece: bytes) -> None:
        for plain in self._plain(piece):
            if not self._is_stream:
                self._body += plain[: max(0, MAX_BODY_BYTES - len(self._body))]
                continue
            for line in self._lines.feed(plain):
                self._read_line(line)

    def end(self) -> None:
        """Note that the answer was received completely."""
        if not self._is_stream:
            if self._complete:
                return
            message = _object(self._body)
            self._read_message(message)
            self._calls.read_message(message)
            self._complete = isinstance(message.get("usage"), dict)
            return
        for line in self._lines.rest():
            self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        if (
            self._complete
            or not line.startswith(b"data:")
            or not any(event in line for event in (*_COUNTED, *_TOOL_BLOCKS))
        ):
            return
        event = _object(line.removeprefix(b"data:"))
        self._calls.read_event(event)
        match event.get("type"):
            case "message_start":
                self._read_message(event.get("message"))
            case "message_delta":
                self._learn(event.get("usage"))
            case "message_stop":
                self._complete = True

    def _read_message(self, message: Any) -> None:
        if not isinstance(message, dict):
            return
        named = message.get("model")
        if isinstance(named, str) and 0 < len(named) <= MAX_MODEL_LENGTH:
            self._model = named
        self._learn(message.get("usage"))

    def _learn(self, usage: Any) -> None:
        """Take later figures, which are sums; missing ones and null change nothing."""
        if isinstance(usage, dict):
            self._stated |= {name: value for name, value in usage.items() if value is not None}

    def _plain(self, piece: bytes) -> Iterator[bytes]:
        """Decompress in steps, because a small piece may expand to a very large one."""
        if self._unpack is None:
            yield piece
            return
        try:
            while piece:
                yield self._unpack.decompress(piece, MAX_EVENT_BYTES)
                piece = self._unpack.unconsumed_tail
        except zlib.error:
            return


def _unpacking(encoding: str) -> Any:
    """Return a decompressor for gzip and deflate; other encodings are not read."""
    packed = encoding.strip().lower() in ("gzip", "x-gzip", "deflate")
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32) if packed else None


def _object(text: bytes | bytearray) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


PREFIX = "anthropic-ratelimit-"


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiLimits:
    """The rate limits in the last answer."""

    status: int = 0
    at: datetime | None = None
    retry_after: str = ""
    """Seconds or a date, as sent."""
    headers: dict[str, str] = field(default_factory=dict)
    """All headers that begin with `anthropic-ratelimit-`, in lower case."""


def limits_in(status: int, headers: Iterable[tuple[str, str]]) -> ApiLimits | None:
    """Return the rate limits of an answer, or None."""
    named = {name.lower(): value for name, value in headers}
    stated = {name: value for name, value in named.items() if name.startswith(PREFIX)}
    retry_after = named.get("retry-after", "")
    if not stated and not retry_after:
        return None
    return ApiLimits(status=status, at=datetime.now(UTC), retry_after=retry_after, headers=stated)


# Limits of clients: a request that is sent slowly or not to its end holds a thread and memory.

MAX_CONNECTIONS = 256
MAX_HEAD_BYTES = 128 * 1024
MAX_REQUEST_BYTES = 64 * 1024 * 1024
# Of the bodies of all requests until they are answered.
MAX_HELD_BYTES = 4 * MAX_REQUEST_BYTES
# From the first byte to the last.
REQUEST_SECONDS = 60.0
# Longer than clients keep a connection for their next request.
IDLE_SECONDS = 900.0


class RequestReader(io.RawIOBase):
    """Reads from a client; raises if a request takes too long or its head is too large."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self.next_request()

    def next_request(self) -> None:
        self._deadline: float | None = None
        self._allowed = MAX_HEAD_BYTES

    def expect(self, length: int) -> None:
        """Allow a body of this length after the head."""
        self._allowed += length

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._allowed <= 0:
            raise LineTooLong("head of the request")
        seconds = IDLE_SECONDS if self._deadline is None else self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the request did not arrive in time")
        self._client.settimeout(seconds)
        count = self._client.recv_into(buffer)
        self._client.settimeout(SILENCE_SECONDS)
        self._allowed -= count
        if self._deadline is None:
            self._deadline = time.monotonic() + REQUEST_SECONDS
        return count


class BodyMemory:
    """Bounds the memory of all bodies. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held = 0

    @contextmanager
    def holding(self, length: int) -> Iterator[None]:
        """Wait until there is room for a body; raise TimeoutError if there is none in time."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._held + length <= MAX_HELD_BYTES, REQUEST_SECONDS
            ):
                raise TimeoutError("other requests hold the memory for bodies")
            self._held += length
        try:
            yield
        finally:
            with self._changed:
                self._held -= length
                self._changed.notify_all()


HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade"),
}
OURS = {"accept-encoding": "identity", "content-type": "application/json"}


class ApiRefusal(NamedTuple):
    status: int
    message: str


class ApiProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def api_proxy(self) -> Any:
        return self.server.api_proxy  # type: ignore[attr-defined]

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reader = RequestReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        self._reader.next_request()
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a request line may hold anything."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer invalid HTTP in the API's error format."""
        self.close_connection = True
        if getattr(self, "request_version", "HTTP/0.9") != "HTTP/0.9":
            self._refuse(ApiRefusal(code, message or "This request cannot be read."))

    def do_HEAD(self) -> None:
        """Answer the connection check of the CLI."""
        known = self.path.partition("?")[0] == "/"
        self._send_head(200 if known else 404, [("content-length", "0")])

    def do_GET(self) -> None:
        self._refuse(ApiRefusal(404, "The API proxy passes messages only."))

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def do_POST(self) -> None:
        refusal = self._objection_to_head()
        length = self._length()
        self._reader.expect(length or 0)
        if refusal is not None or length is None:
            self._discard(length)
            return self._refuse(refusal or ApiRefusal(411, "A request needs a Content-Length."))
        with self.server.body_memory.holding(length):  # type: ignore[attr-defined]
            body = self.rfile.read(length)
            if len(body) < length:
                self.close_connection = True
                return None
            model, refusal = self._judged(body)
            if refusal is not None:
                logger.warning("Refused a request to the API: %s", refusal.message)
                return self._refuse(refusal)
            return self._exchange(model, body)

    def _judged(self, body: bytes) -> tuple[str, ApiRefusal | None]:
        """Return the model of a request, and the reason why it may not be sent."""
        policy = RequestPolicy(path=TARGETS[self.path], web_search=self.api_proxy.web_search)
        # One at a time: a parsed request takes several times the memory of its body.
        with self.server.judging:  # type: ignore[attr-defined]
            request = read_request(body)
            refusal = judge_message_request(request, policy)
            model = str(request.get("model"))
            del request
        if refusal is not None:
            return model, ApiRefusal(400, refusal.message)
        objection = self.api_proxy.objection_to(model)
        return model, ApiRefusal(403, objection) if objection else None

    def _objection_to_head(self) -> ApiRefusal | None:
        if self.request_version != "HTTP/1.1":
            return ApiRefusal(505, "The API proxy speaks HTTP/1.1.")
        bearer = self.headers.get("authorization", "").partition(" ")
        by_bearer = bearer[2].strip() if bearer[0].lower() == "bearer" else None
        if not self.api_proxy.accepts(by_bearer, self.headers.get("x-api-key")):
            return ApiRefusal(401, "This token is not valid for the API proxy of this run.")
        if self.path not in TARGETS:
            return ApiRefusal(404, "The API proxy passes messages only.")
        if any("\r" in value or "\n" in value for value in self.headers.values()):
            return ApiRefusal(400, "A header goes over several lines.")
        return None

    def _length(self) -> int | None:
        """Return the length of the body; None if it is unknown or too long."""
        stated = self.headers.get_all("content-length", [])
        if self.headers.get("transfer-encoding") or len(stated) != 1:
            return None
        text = stated[0].strip()
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            return None
        return int(text) if int(text) <= MAX_REQUEST_BYTES else None

    def _discard(self, length: int | None) -> None:
        """Read the body away: a client that still sends would not read the answer."""
        if length is None:
            self.close_connection = True
            return
        while length > 0 and (piece := self.rfile.read(min(length, 64 * 1024))):
            length -= len(piece)

    def _exchange(self, model: str, body: bytes) -> None:
        exchange = UpstreamExchange(self.api_proxy.connections)
        try:
            with self.server.watcher.calling(exchange.cut, self.connection):  # type: ignore[attr-defined]
                self._pass_on(exchange, model, body)
        finally:
            exchange.close()

    def _pass_on(self, exchange: UpstreamExchange, model: str, body: bytes) -> None:
        try:
            headers = {**known_headers(self.headers.items()), **OURS}
            answer = exchange.ask(self.path, headers, body)
        except FAULTS as problem:
            if exchange.is_cut:
                return self._note_unseen(model)
            return self._refuse(
                ApiRefusal(502, f"The API cannot be reached: {_error_text(problem)}.")
            )
        answered = answer.getheaders()
        self.api_proxy.limits = limits_in(answer.status, answered) or self.api_proxy.limits
        if answer.status in (301, 302, 303, 307, 308):
            return self._refuse(ApiRefusal(502, "The API redirects: correct ANTHROPIC_BASE_URL."))
        pieces = exchange.pieces(answer)
        if self._is_charged and answer.status == 200:
            pieces = self._counted(pieces, model, answer)
        self._stream(answer, answered, pieces)

    @property
    def _is_charged(self) -> bool:
        return TARGETS[self.path] == MESSAGES

    def _note_unseen(self, model: str) -> None:
        """Count a request whose client disconnected before the answer: it may be charged."""
        self.close_connection = True
        if self._is_charged:
            ledger = self.api_proxy.ledger
            ledger.note(ledger.new_name(), Usage(model=model, tokens=Tokens(), complete=False))

    def _counted(self, pieces: Pieces, model: str, answer: HTTPResponse) -> Pieces:
        """Record the usage in a piece before it is passed on."""
        ledger = self.api_proxy.ledger
        name = ledger.new_name()
        meter = Meter(
            model=model,
            content_type=answer.getheader("content-type", ""),
            encoding=answer.getheader("content-encoding", ""),
            on_call=self.api_proxy.on_call,
        )
        noted = None
        try:
            for piece in pieces:
                meter.feed(piece)
                if answer.length == 0:
                    meter.end()
                if (usage := meter.usage) != noted:
                    ledger.note(name, usage)
                    noted = usage
                yield piece
            meter.end()
        finally:
            if meter.usage != noted:
                ledger.note(name, meter.usage)

    def _stream(
        self,
        answer: HTTPResponse,
        headers: list[tuple[str, str]],
        pieces: Pieces,
    ) -> None:
        left_out = HOP_BY_HOP | _named_in(answer.getheader("connection", ""))
        passed = [(name, value) for name, value in headers if name.lower() not in left_out]
        chunked = answer.length is None
        try:
            self._send_head(
                answer.status,
                [*passed, *([("transfer-encoding", "chunked")] if chunked else [])],
                answer.reason,
            )
            for piece in pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        except FAULTS as problem:
            # Close, so that the client does not take this for the end.
            logger.info("An answer of the API was cut off: %s", _error_text(problem))
            self.close_connection = True
        finally:
            pieces.close()

    def _refuse(self, refusal: ApiRefusal) -> None:
        """Answer in the API's error format; the CLI must not retry a refusal of the proxy."""
        content = json.dumps(error_body(refusal.status, refusal.message)).encode()
        retried = refusal.status >= 500
        self._send_head(
            refusal.status,
            [
                ("content-type", "application/json"),
                ("content-length", str(len(content))),
                *([] if retried else [("x-should-retry", "false")]),
            ],
        )
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_head(
        self, status: int, headers: list[tuple[str, str]], reason: str | None = None
    ) -> None:
        self.send_response_only(status, reason)
        for name, value in headers:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()


def _named_in(connection: str) -> set[str]:
    return {name.strip().lower() for name in connection.split(",")}


def _error_text(problem: BaseException) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return str(problem) or type(problem).__name__


# Not for data: a client may already send its next request.
_GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class DisconnectWatcher:
    """Notices at once that a client has disconnected, in one thread for all requests.

    Otherwise a stopped run would be charged until the next piece could not be delivered.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, Callable[[], None]] = {}
        self._epoll = select.epoll()
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._end, select.EPOLLIN)
        self._thread = threading.Thread(target=self._watch, name="disconnects", daemon=True)
        self._thread.start()

    @contextmanager
    def calling(self, on_disconnect: Callable[[], None], client: socket.socket) -> Iterator[None]:
        """Call `on_disconnect`, in the watcher's thread, if the client disconnects in the block."""
        descriptor = client.fileno()
        with self._lock:
            self._calls[descriptor] = on_disconnect
            self._epoll.register(descriptor, _GONE | select.EPOLLONESHOT)
        try:
            yield
        finally:
            with self._lock, suppress(OSError, ValueError):
                self._calls.pop(descriptor, None)
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        os.eventfd_write(self._end, 1)
        self._thread.join()
        with self._lock:
            self._epoll.close()
            os.close(self._end)

    def _watch(self) -> None:
        while True:
            for descriptor, _event in self._epoll.poll():
                if descriptor == self._end:
                    return
                with self._lock:
                    if call := self._calls.pop(descriptor, None):
                        call()


# Models: the names in the settings of a tier, compared with the id in a request.

# Aliases of the CLI that stand for other families.
FAMILIES = {"opusplan": ("opus", "sonnet"), "best": ("opus",)}
KNOWN_FAMILIES = {"haiku", "sonnet", "opus"}
_NAME = re.compile(r"[\w.:@/\[\]+-]+", re.ASCII)
_LONG_CONTEXT = re.compile(r"\[1m\]$")
_DATE = re.compile(r"[-@]\d{8}$")


def may_ask(model: str, models: tuple[str, ...]) -> bool:
    """Return whether one of the names of the tier means this model."""
    if not _NAME.fullmatch(model):
        return model in models
    asked = _plain(model)
    return any(_means(_plain(name), asked) for name in models)


def _means(word: str, asked: str) -> bool:
    if not word:
        return False
    if word.isalpha():
        families = set(FAMILIES.get(word, (word,)))
        named = set(re.split(r"[^a-z]+", asked))
        # An id with two families is ambiguous.
        return bool(named & families) and not named & KNOWN_FAMILIES - families
    return asked == word or _DATE.sub("", asked) == word


def _plain(model: str) -> str:
    return _LONG_CONTEXT.sub("", model.strip().lower())


DRAIN_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    base_url: str
    token: str = field(repr=False)
    variable: str
    no_proxy: str

    @property
    def environment(self) -> dict[str, str]:
        """Variables that replace key and address for the CLI; NO_PROXY, as it connects directly."""
        return {
            "ANTHROPIC_BASE_URL": self.base_url,
            self.variable: self.token,
            "NO_PROXY": self.no_proxy,
            "no_proxy": self.no_proxy,
        }


class ApiProxy:
    """Serves one run from threads of this process, on loopback.

    `spending`, `refused` and `limits` may be read at any time, also after the end.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        models: tuple[str, ...],
        tools: Collection[str],
        objection: Callable[[Spending], str],
        ledger: Path,
        on_call: OnCall = ignore_call,
    ) -> None:
        self.on_call = on_call
        self.web_search = "WebSearch" in tools
        self.connections = Connections(upstream)
        self.ledger = Ledger(ledger)
        self.limits = ApiLimits()
        self.refused = ""
        """The reason why the run was stopped between two requests; empty if it was not."""
        self._upstream = upstream
        self._models = models
        self._objection = objection
        self._token = secrets.token_urlsafe(32)

    def __repr__(self) -> str:
        return f"<ApiProxy for {', '.join(self._models)}>"

    @property
    def spending(self) -> Spending:
        return self.ledger.spending

    @contextmanager
    def serving(self) -> Iterator[Serving]:
        watcher = DisconnectWatcher()
        server = _ApiProxyServer(self, watcher)
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="api-proxy", daemon=True
        )
        thread.start()
        try:
            yield Serving(
                base_url=f"http://127.0.0.1:{server.server_address[1]}",
                token=self._token,
                variable=self._upstream.variable,
                no_proxy=",".join(filter(None, (self._upstream.no_proxy, "127.0.0.1"))),
            )
        finally:
            shut_down(server)
            server.server_close()
            server.cut_all()
            self.connections.close()
            watcher.close()

    def accepts(self, *credentials: str | None) -> bool:
        token = self._token.encode()
        offered = [(text or "").encode("utf-8", "replace") for text in credentials]
        return any([hmac.compare_digest(text, token) for text in offered])

    def objection_to(self, model: str) -> str:
        """Return the reason why this request may not be sent; empty if it may."""
        if not may_ask(model, self._models):
            permitted = ", ".join(self._models)
            return f"The model {model[:200]!r} is not permitted at this tier: {permitted}."
        try:
            objection = self._objection(self.spending)
        except Exception:
            logger.exception("Could not check whether a run may continue")
            objection = "It could not be checked whether this run may continue."
        if objection:
            self.refused = self.refused or objection
        return objection


def shut_down(server: ThreadingHTTPServer) -> None:
    """Shut down at once: a connection wakes the server, which polls 20 times a second."""
    stopping = threading.Thread(target=server.shutdown, daemon=True)
    stopping.start()
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", server.server_port), timeout=1).close()
    stopping.join()


class _ApiProxyServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, api_proxy: ApiProxy, watcher: DisconnectWatcher) -> None:
        self.api_proxy = api_proxy
        self.watcher = watcher
        self.body_memory = BodyMemory()
        self.judging = threading.Lock()
        self._clients: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(("127.0.0.1", 0), ApiProxyHandler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._changed:
            is_full = len(self._clients) >= MAX_CONNECTIONS
        return not is_full and str(client_address[0]).startswith("127.")

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._clients.discard(request)
            self._changed.notify_all()
        super().shutdown_request(request)

    def cut_all(self) -> None:
        """Close all connections and wait until their threads have recorded their usage."""
        with self._changed:
            for client in self._clients:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._clients, DRAIN_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log at debug level: a client that disconnects is no error."""
        logger.debug("A request to the API proxy ended early", exc_info=True)
