"""A forward HTTP proxy for the sandboxes of one tier.

It resolves a name once, judges every address of it, and connects to a judged address: a name that
resolves differently the next time gains nothing. Redirects are followed by the client, whose next
request arrives here again.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import h11

from escalation.sandbox.broker import (
    HEAD_SECONDS,
    LENGTHS,
    Exchange,
    Headers,
    Refused,
    Relay,
    end_to_end,
    names_of,
    serving_connections,
)

READING = frozenset({"GET", "HEAD", "OPTIONS"})
HTTPS_PORT = 443
ENGINE_PORTS = frozenset({2375, 2376, 2377})
"""A Docker engine or a swarm manager, which would bypass the Docker filter."""
METADATA_NAMES = frozenset({"metadata.google.internal", "metadata"})
# The metadata services of clouds hand out credentials. Most have a link-local address.
METADATA_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        ("169.254.0.0/16", "fd00:ec2::/32", "100.100.100.200/32", "168.63.129.16/32"),
    )
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

HOST = rb"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
ABSOLUTE = re.compile(rb"(?i:http)://" + HOST + rb"(?::(?P<port>[0-9]{1,5}))?(?P<path>[/?].*)?")
AUTHORITY = re.compile(HOST + rb":(?P<port>[0-9]{1,5})")
# A server that honours one of these would change something by GET.
METHOD_OVERRIDES = {b"x-http-method-override", b"x-http-method", b"x-method-override"}

IDLE_SECONDS = 300.0
CONNECT_SECONDS = 10.0


class Connect(Enum):
    """The hosts to which CONNECT opens a tunnel, which nobody can look into."""

    NONE = auto()
    LISTED = auto()
    ALL = auto()


class RefusalCode(Enum):
    METHOD = auto()
    BODY = auto()
    CONNECT = auto()
    NOT_LISTED = auto()
    ENGINE = auto()
    METADATA = auto()
    OWN = auto()


@dataclass(frozen=True, slots=True)
class Refusal:
    code: RefusalCode
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRules:
    methods: frozenset[str] = frozenset({"GET", "HEAD"})
    connect: Connect = Connect.NONE
    hosts: tuple[str, ...] = ()
    """For LISTED: `nas.lan`, `*.example.lan`, `nas.lan:8443`. Without a port 443 is meant."""
    own_ports: frozenset[int] = frozenset()
    """Refused on this host under each of its addresses: web server, API proxy, PostgreSQL."""
    forbidden: frozenset[tuple[str, int]] = frozenset()
    """Further names or addresses with a port: the web server or PostgreSQL on another host."""


class Failure(Enum):
    """Reasons for which a request is not passed on."""

    DENIED = auto()
    NAME = auto()
    CONNECTION = auto()


OnFailure = Callable[[Failure, str], None]
"""Called with the reason in words."""


def _no_report(failure: Failure, words: str) -> None:
    """Default for a caller that needs no report."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRecord:
    """A request that was decided on; the reason is empty if it was allowed."""

    method: str
    host: str
    port: int
    allowed: bool
    reason: str = ""


def judge_request(
    rules: HttpRules, method: str, host: str, port: int, *, has_body: bool = False
) -> Refusal | None:
    """Judge what a request names, before its name is resolved."""
    name = _plain_name(host)
    if method == "CONNECT":
        refusal = _judge_connect(rules, name, port)
    else:
        refusal = _judge_method(rules, method, has_body)
    if refusal:
        return refusal
    if port in ENGINE_PORTS:
        return Refusal(
            RefusalCode.ENGINE,
            f"Port {port} belongs to a Docker engine: use the docker command.",
        )
    if name in METADATA_NAMES:
        return _metadata(host)
    return _own(host, port) if (name, port) in rules.forbidden else None


def judge_address(rules: HttpRules, address: str, port: int, *, is_local: bool) -> Refusal | None:
    """Judge a resolved address; `is_local` says whether it belongs to this host."""
    for ip in _meanings(address):
        if any(ip in network for network in METADATA_NETWORKS):
            return _metadata(address)
        local = is_local or ip.is_loopback or ip.is_unspecified
        if (local and port in rules.own_ports) or (str(ip), port) in rules.forbidden:
            return _own(address, port)
    return None


def _judge_connect(rules: HttpRules, name: str, port: int) -> Refusal | None:
    if rules.connect is Connect.ALL:
        return None
    if rules.connect is Connect.NONE:
        return Refusal(
            RefusalCode.CONNECT,
            "https from programs other than curl and wget is not allowed at this tier: use curl.",
        )
    if any(_is_listed(entry, name, port) for entry in rules.hosts):
        return None
    return Refusal(
        RefusalCode.NOT_LISTED,
        f"https to {name}:{port} is only allowed from curl and wget at this tier: use curl, or ask "
        "the operator to list the host.",
    )


def _judge_method(rules: HttpRules, method: str, has_body: bool) -> Refusal | None:
    if method not in rules.methods:
        return Refusal(
            RefusalCode.METHOD,
            f"{method} is not allowed at this tier, only {', '.join(sorted(rules.methods))}: ask "
            "for escalation if something has to be changed.",
        )
    # The lines of a body would be commands for a server that does not speak HTTP.
    if has_body and rules.methods <= READING:
        return Refusal(
            RefusalCode.BODY,
            f"{method} with a body is not allowed at this tier: put the query into the address.",
        )
    return None


def _is_listed(entry: str, name: str, port: int) -> bool:
    listed, colon, number = entry.casefold().rpartition(":")
    if not colon:
        listed, number = number, str(HTTPS_PORT)
    if number != str(port):
        return False
    if listed.startswith("*."):
        return name.endswith(listed[1:]) and name != listed[1:]
    return name == listed


def _plain_name(host: str) -> str:
    return host.casefold().removesuffix(".")


def _meanings(address: str) -> Iterator[IpAddress]:
    """Yield the address and the IPv4 address that it contains."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    yield ip
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in NAT64:
            yield ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner := ip.ipv4_mapped or ip.sixtofour:
            yield inner


def _metadata(host: str) -> Refusal:
    return Refusal(
        RefusalCode.METADATA, f"{host} hands out credentials of a cloud: no tier may ask it."
    )


def _own(host: str, port: int) -> Refusal:
    return Refusal(RefusalCode.OWN, f"{host}:{port} belongs to Claude Ops itself: no tier uses it.")


class HttpProxy:
    """Serves any number of sandboxes; each brings a listener of its own network namespace."""

    def __init__(
        self,
        rules: HttpRules,
        on_request: Callable[[RequestRecord], None] = lambda record: None,
        *,
        head_seconds: float = HEAD_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.rules = rules
        self.on_request = on_request
        self.head_seconds = head_seconds
        self.idle_seconds = idle_seconds

    @contextmanager
    def serving(
        self, listener: socket.socket, on_failure: OnFailure = _no_report
    ) -> Iterator[None]:
        """Serve in the block; then close the listener and all connections."""

        def serve(client: socket.socket) -> None:
            _ProxyExchange(client, self, on_failure).answer()

        with serving_connections(listener, serve):
            yield

    @contextmanager
    def serving_port(
        self, listener: socket.socket, on_failure: OnFailure = _no_report
    ) -> Iterator[None]:
        """Serve a port of this host in a sandbox: connections, and HTTP that the rules allow."""
        port = listener.getsockname()[1]

        def serve(client: socket.socket) -> None:
            _PortExchange(client, self, on_failure, port).answer()

        with serving_connections(listener, serve):
            yield


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    method: str
    host: str
    port: int
    path: str


def _parse(request: h11.Request) -> _Asked:
    """Return what the request line asks for; it decides, not the Host header."""
    method = request.method.decode("ascii")
    found = (AUTHORITY if method == "CONNECT" else ABSOLUTE).fullmatch(request.target)
    if found is None:
        raise Refused(400, "This is a proxy for http://HOST/PATH and for CONNECT HOST:PORT.")
    parts = found.groupdict()
    port = int(parts["port"] or 80)
    path = (parts.get("path") or b"/").decode("ascii")
    if not 0 < port < 2**16 or "#" in path:
        raise Refused(400, "The address cannot be read.")
    return _Asked(
        method=method,
        host=parts["host"].decode("ascii").strip("[]"),
        port=port,
        path=path if path.startswith("/") else f"/{path}",
    )


class _ProxyExchange(Exchange):
    def __init__(self, client: socket.socket, proxy: HttpProxy, on_failure: OnFailure) -> None:
        super().__init__(client, proxy.head_seconds)
        self._proxy = proxy
        self._on_failure = on_failure

    def asked_by(self, request: h11.Request) -> _Asked:
        return _parse(request)

    def handle(self, request: h11.Request) -> None:
        asked = self.asked_by(request)
        if asked.method == "CONNECT" and names_of(request) & LENGTHS:
            raise Refused(400, "CONNECT has no body.")
        addresses = self._judged_addresses(asked, has_body=_has_body(request))
        with self._connected(asked, addresses) as upstream:
            relay = Relay(self._client, self._wire, upstream, self._proxy.idle_seconds)
            if asked.method == "CONNECT":
                self._body()
                relay.tunnel()
            else:
                self._continue_body()
                relay.ask(asked.method, asked.path, _headers_for(request, asked), None)
            self._relay(relay)

    def _judged_addresses(self, asked: _Asked, *, has_body: bool) -> list[str]:
        """Resolve the name; record the decision, and raise Refused if it is a refusal."""
        rules = self._proxy.rules
        refusal = judge_request(rules, asked.method, asked.host, asked.port, has_body=has_body)
        addresses = [] if refusal else _resolved(asked)
        for address in addresses:
            refusal = refusal or judge_address(
                rules, address, asked.port, is_local=is_local(address)
            )
        self._proxy.on_request(
            RequestRecord(
                method=asked.method,
                host=asked.host,
                port=asked.port,
                allowed=refusal is None,
                reason=refusal.message if refusal else "",
            )
        )
        if refusal:
            raise self._failed(403, Failure.DENIED, refusal.message)
        if not addresses:
            words = f"The name {asked.host} cannot be resolved."
            raise self._failed(502, Failure.NAME, words)
        return addresses

    def _connected(self, asked: _Asked, addresses: list[str]) -> socket.socket:
        problem: OSError | None = None
        for address in addresses:
            try:
                return socket.create_connection((address, asked.port), CONNECT_SECONDS)
            except OSError as error:
                problem = error
        status = 504 if isinstance(problem, TimeoutError) else 502
        words = f"No connection to {asked.host}:{asked.port}: {problem}."
        raise self._failed(status, Failure.CONNECTION, words)

    def _failed(self, status: int, failure: Failure, words: str) -> Refused:
        self._on_failure(failure, words)
        return Refused(status, words)


class _PortExchange(_ProxyExchange):
    """Reads a request as a server gets it, for a port of this host."""

    def __init__(
        self, client: socket.socket, proxy: HttpProxy, on_failure: OnFailure, port: int
    ) -> None:
        super().__init__(client, proxy, on_failure)
        self._port = port

    def asked_by(self, request: h11.Request) -> _Asked:
        target = request.target.decode("ascii", "replace")
        if not target.startswith("/") or request.method == b"CONNECT":
            raise Refused(400, "In a sandbox a port takes HTTP requests for a path alone.")
        method = request.method.decode("ascii")
        return _Asked(method=method, host="127.0.0.1", port=self._port, path=target)


SOCKETS_OF_HOST = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"
LOOPBACK = re.compile(r"0{8}|0{32}|[0-9A-F]{6}7F|0{24}01000000")
MOST_PORTS = 100


def open_ports() -> frozenset[int]:
    """Return the TCP ports on which this host listens for itself."""
    found = set()
    for file in SOCKETS_OF_HOST:
        with suppress(OSError):
            for line in file.read_text().splitlines()[1:]:
                _number, local, _remote, state, *_rest = line.split()
                address, _colon, port = local.partition(":")
                if state == LISTENS and LOOPBACK.fullmatch(address):
                    found.add(int(port, 16))
    return frozenset(sorted(found)[:MOST_PORTS])


def _has_body(request: h11.Request) -> bool:
    lengths = [value for name, value in request.headers if name in LENGTHS]
    return any(value != b"0" for value in lengths)


def _headers_for(request: h11.Request, asked: _Asked) -> Headers:
    without = {b"host"} | (METHOD_OVERRIDES if asked.method in READING else set())
    host = f"[{asked.host}]" if ":" in asked.host else asked.host
    authority = host if asked.port == 80 else f"{host}:{asked.port}"
    return [
        (b"host", authority.encode()),
        *end_to_end(request, without),
        (b"connection", b"close"),
    ]


def _resolved(asked: _Asked) -> list[str]:
    try:
        found = socket.getaddrinfo(asked.host, asked.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]) for *_rest, address in found))


def is_local(address: str) -> bool:
    """Return whether an address belongs to this host: a datagram to it would come from itself."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect((address, 9))
        return bool(probe.getsockname()[0] == address)
    return False
