from __future__ import annotations

import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from escalation.sandbox.http_proxy import (
    Connect,
    HttpProxy,
    HttpRules,
    RefusalCode,
    RequestRecord,
    is_local,
    judge_address,
    judge_request,
)
from tests.escalation.sandbox.running import tls_context
from tests.tables import each_row

# The decisions.

OBSERVE = HttpRules()
LISTED = HttpRules(connect=Connect.LISTED, hosts=("nas.lan", "*.example.lan", "NAS2.lan:8443"))
CHANGE = HttpRules(methods=frozenset({"GET", "HEAD", "POST", "PUT"}), connect=Connect.ALL)
OWN = replace(
    CHANGE, own_ports=frozenset({8000}), forbidden=frozenset({("ops.lan", 443), ("10.0.0.5", 5432)})
)


def code_of(refusal) -> RefusalCode | None:
    return refusal.code if refusal else None


@each_row(
    ("rules", "method", "host", "port", "code"),
    [
        (OBSERVE, "GET", "example.com", 80, None),
        (OBSERVE, "HEAD", "192.168.1.4", 8080, None),
        (OBSERVE, "GET", "127.0.0.1", 3000, None),
        (OBSERVE, "GET", "::1", 3000, None),
        (OBSERVE, "POST", "example.com", 80, RefusalCode.METHOD),
        (OBSERVE, "get", "example.com", 80, RefusalCode.METHOD),
        (OBSERVE, "DELETE", "example.com", 80, RefusalCode.METHOD),
        (OBSERVE, "TRACE", "example.com", 80, RefusalCode.METHOD),
        (OBSERVE, "CONNECT", "example.com", 443, RefusalCode.CONNECT),
        (LISTED, "CONNECT", "nas.lan", 443, None),
        (LISTED, "CONNECT", "NAS.lan.", 443, None),
        (LISTED, "CONNECT", "nas.lan", 22, RefusalCode.NOT_LISTED),
        (LISTED, "CONNECT", "nas2.lan", 8443, None),
        (LISTED, "CONNECT", "nas2.lan", 443, RefusalCode.NOT_LISTED),
        (LISTED, "CONNECT", "a.example.lan", 443, None),
        (LISTED, "CONNECT", "a.b.example.lan", 443, None),
        (LISTED, "CONNECT", "example.lan", 443, RefusalCode.NOT_LISTED),
        (LISTED, "CONNECT", ".example.lan", 443, RefusalCode.NOT_LISTED),
        (LISTED, "CONNECT", "evilexample.lan", 443, RefusalCode.NOT_LISTED),
        (LISTED, "CONNECT", "nas.lan.evil.com", 443, RefusalCode.NOT_LISTED),
        (LISTED, "GET", "other.lan", 80, None),
        (CHANGE, "CONNECT", "example.com", 443, None),
        (CHANGE, "POST", "example.com", 80, None),
        (CHANGE, "DELETE", "example.com", 80, RefusalCode.METHOD),
        (CHANGE, "GET", "nas.lan", 2375, RefusalCode.ENGINE),
        (CHANGE, "CONNECT", "nas.lan", 2376, RefusalCode.ENGINE),
        (CHANGE, "GET", "nas.lan", 2377, RefusalCode.ENGINE),
        (CHANGE, "GET", "Metadata.Google.Internal.", 80, RefusalCode.METADATA),
        (OWN, "GET", "OPS.lan", 443, RefusalCode.OWN),
        (OWN, "GET", "ops.lan", 80, None),
    ],
)
def test_a_request_is_judged_by_method_name_and_port(rules, method, host, port, code):
    assert code_of(judge_request(rules, method, host, port)) == code


@each_row(
    ("rules", "method", "code"),
    [
        (OBSERVE, "GET", RefusalCode.BODY),
        (OBSERVE, "HEAD", RefusalCode.BODY),
        (CHANGE, "GET", None),
        (CHANGE, "POST", None),
    ],
)
def test_a_body_needs_rules_that_allow_a_change(rules, method, code):
    assert code_of(judge_request(rules, method, "nas.lan", 11211, has_body=True)) == code


@each_row(
    ("address", "port", "is_local", "code"),
    [
        ("192.168.1.4", 8000, False, None),
        ("10.0.0.4", 80, False, None),
        ("127.0.0.1", 3000, True, None),
        ("::1", 3000, True, None),
        ("fe80::1%2", 80, False, None),
        ("127.0.0.1", 8000, True, RefusalCode.OWN),
        ("127.9.9.9", 8000, False, RefusalCode.OWN),
        ("0.0.0.0", 8000, False, RefusalCode.OWN),  # noqa: S104
        ("::", 8000, False, RefusalCode.OWN),
        ("::1", 8000, False, RefusalCode.OWN),
        ("::ffff:127.0.0.1", 8000, False, RefusalCode.OWN),
        ("::ffff:7f00:1", 8000, False, RefusalCode.OWN),
        ("192.168.1.2", 8000, True, RefusalCode.OWN),
        ("10.0.0.5", 5432, False, RefusalCode.OWN),
        ("::ffff:10.0.0.5", 5432, False, RefusalCode.OWN),
        ("10.0.0.5", 80, False, None),
        ("169.254.169.254", 80, False, RefusalCode.METADATA),
        ("169.254.170.2", 80, False, RefusalCode.METADATA),
        ("::ffff:169.254.169.254", 80, False, RefusalCode.METADATA),
        ("64:ff9b::a9fe:a9fe", 80, False, RefusalCode.METADATA),
        ("2002:a9fe:a9fe::1", 80, False, RefusalCode.METADATA),
        ("fd00:ec2::254", 80, False, RefusalCode.METADATA),
        ("100.100.100.200", 80, False, RefusalCode.METADATA),
        ("100.100.100.201", 80, False, None),
    ],
)
def test_an_address_is_judged_in_every_form(address, port, is_local, code):
    assert code_of(judge_address(OWN, address, port, is_local=is_local)) == code


def test_addresses_of_this_host_are_recognized():
    # What a packet to elsewhere would be sent from; TEST-NET-1 is nobody's.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("127.0.0.1", 9))
        own = probe.getsockname()[0]

    assert is_local(own)
    assert is_local("::ffff:127.0.0.1")
    assert not is_local("192.0.2.1")


# The proxy.


@dataclass
class Web:
    """A web server that records what reaches it."""

    port: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    """Answers by the method that a path names."""

    protocol_version = "HTTP/1.1"

    @property
    def web(self) -> Web:
        return self.server.web  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self.web.requests.append((self.command, self.path))
        self.web.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.web.bodies.append(self.read_body())
        getattr(self, f"answer_{self.path.strip('/')}", self.answer)()

    do_HEAD = do_POST = do_PUT = do_GET

    def read_body(self) -> bytes:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "5")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"hello")

    def answer_moved(self) -> None:
        self.answer(302, Location=f"http://127.0.0.1:{self.web.port}/there")

    def answer_missing(self) -> None:
        self.answer(404, Connection="x-inner", X_Inner="1", Keep_Alive="5", X_Outer="1")

    def answer_endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"first")
        self.web.release.wait(20)
        self.wfile.write(b"second")
        self.close_connection = True

    def answer_silent(self) -> None:
        self.web.release.wait(20)
        self.close_connection = True

    def answer_nonsense(self) -> None:
        self.wfile.write(b"nonsense\r\n\r\n")
        self.close_connection = True

    def answer_half(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"half")
        self.close_connection = True

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Web]:
    found = Web()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.web = found  # type: ignore[attr-defined]
        server.daemon_threads = True
        found.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield found
        found.release.set()
        server.shutdown()
        thread.join()


Proxies = Callable[..., int]


@pytest.fixture
def records() -> list[RequestRecord]:
    return []


@pytest.fixture
def proxy(records) -> Iterator[Proxies]:
    """Starts a proxy with these rules; gives its port."""
    with ExitStack() as stack:

        def at(rules: HttpRules = OBSERVE, **seconds: float) -> int:
            listener = socket.create_server(("127.0.0.1", 0))
            stack.enter_context(HttpProxy(rules, records.append, **seconds).serving(listener))
            return listener.getsockname()[1]

        yield at


def raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


def curl(port: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["curl", "-q", "-sS", "-m", "20", "-x", f"http://127.0.0.1:{port}", *words],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PATH": "/usr/bin:/bin", "no_proxy": ""},
    )


def opener(port: int) -> urllib.request.OpenerDirector:
    here = f"http://127.0.0.1:{port}"
    return urllib.request.build_opener(urllib.request.ProxyHandler({"http": here, "https": here}))


def test_curl_reads_through_the_proxy(web, proxy, records):
    result = curl(proxy(), f"http://127.0.0.1:{web.port}/a?b=c%20d")

    assert (result.returncode, result.stdout) == (0, "hello")
    assert web.requests == [("GET", "/a?b=c%20d")]
    assert web.headers[0]["host"] == f"127.0.0.1:{web.port}"
    assert not {"proxy-connection", "proxy-authorization"} & set(web.headers[0])
    assert records == [RequestRecord(method="GET", host="127.0.0.1", port=web.port, allowed=True)]


def test_curl_asks_for_the_head_alone(web, proxy):
    result = curl(proxy(), "-I", f"http://127.0.0.1:{web.port}/")

    assert result.stdout.startswith("HTTP/1.1 200")
    assert web.requests == [("HEAD", "/")]


def test_curl_is_told_why_a_change_is_refused(web, proxy, records):
    result = curl(proxy(), "-w", "%{http_code}", "-d", "x=1", f"http://127.0.0.1:{web.port}/")

    assert result.stdout.endswith("\n403")
    assert web.requests == []
    assert [(record.method, record.allowed) for record in records] == [("POST", False)]
    assert records[0].reason in result.stdout


def test_curl_gets_no_tunnel_at_a_tier_without(web, proxy, records):
    result = curl(proxy(), "-p", f"http://127.0.0.1:{web.port}/")

    assert result.returncode == 56
    assert web.requests == []
    assert [record.method for record in records] == ["CONNECT"]


def test_curl_sends_through_a_tunnel_what_the_rules_allow(web, proxy):
    result = curl(proxy(CHANGE), "-p", "-d", "x=1", f"http://127.0.0.1:{web.port}/")

    assert result.stdout == "hello"
    assert web.bodies == [b"x=1"]


def test_curl_follows_a_redirect_and_each_request_is_judged(web, proxy, records):
    result = curl(proxy(), "-L", f"http://127.0.0.1:{web.port}/moved")

    assert result.stdout == "hello"
    assert len(records) == 2
    assert web.requests == [("GET", "/moved"), ("GET", "/there")]


def test_python_reads_through_the_proxy(web, proxy):
    with opener(proxy()).open(f"http://127.0.0.1:{web.port}/x", timeout=10) as answer:
        assert (answer.status, answer.read()) == (200, b"hello")


def test_python_is_refused_a_change_and_https(web, proxy):
    through = opener(proxy())

    with pytest.raises(urllib.error.HTTPError) as refused:
        through.open(f"http://127.0.0.1:{web.port}/", data=b"x", timeout=10)
    refused.value.close()
    with pytest.raises(OSError, match="403"):
        through.open(f"https://127.0.0.1:{web.port}/", timeout=10)
    assert refused.value.code == 403
    assert web.requests == []


def test_an_answer_keeps_its_status_and_loses_headers_of_its_connection(web, proxy):
    answer = raw(proxy(), get(web, "/missing")).lower()

    assert status_of(answer) == 404
    assert b"x-outer" in answer
    assert not any(name in answer for name in (b"x-inner", b"keep-alive"))
    assert b"connection: close" in answer


@pytest.mark.parametrize("framing", ["chunked", "sized"])
def test_a_large_body_is_streamed_in_every_encoding(web, proxy, tmp_path, framing):
    file = tmp_path / "large"
    file.write_bytes(b"x" * 3_000_000)
    header = ["-H", "Transfer-Encoding: chunked"] if framing == "chunked" else []

    result = curl(proxy(CHANGE), "-T", str(file), *header, f"http://127.0.0.1:{web.port}/")

    assert result.stdout == "hello"
    assert web.bodies == [file.read_bytes()]


def get(web: Web, path: str = "/", *headers: str, version: str = "1.1") -> bytes:
    lines = (f"GET http://127.0.0.1:{web.port}{path} HTTP/{version}", "Host: x", *headers, "", "")
    return "\r\n".join(lines).encode()


def test_an_answer_without_a_length_is_streamed(web, proxy):
    with socket.create_connection(("127.0.0.1", proxy()), 10) as client:
        client.sendall(get(web, "/endless"))
        received = b""
        while b"first" not in received:
            received += client.recv(65536)
        web.release.set()
        received += b"".join(iter(lambda: client.recv(65536), b""))

    assert received.endswith(b"6\r\nsecond\r\n0\r\n\r\n")


def test_an_old_client_gets_an_answer_without_chunks(web, proxy):
    web.release.set()

    answer = raw(proxy(), get(web, "/endless", version="1.0"))

    assert answer.endswith(b"\r\n\r\nfirstsecond")


# What no honest client sends.


def test_the_absolute_address_decides_and_not_the_host_header(web, proxy, records):
    raw(proxy(), get(web, "/", "X: 1").replace(b"Host: x", b"Host: example.com:99"))

    assert web.headers[0]["host"] == f"127.0.0.1:{web.port}"
    assert [(record.host, record.port) for record in records] == [("127.0.0.1", web.port)]


POST = b"POST http://127.0.0.1:%d/second HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("opening", ["\r\n", "Connection: keep-alive\r\n\r\n"])
def test_a_second_request_on_one_connection_is_ignored(web, proxy, records, opening):
    first = get(web).removesuffix(b"\r\n") + opening.encode()

    answer = raw(proxy(), first + POST % web.port)

    assert status_of(answer) == 200
    assert web.requests == [("GET", "/")]
    assert len(records) == 1


def test_a_body_that_looks_like_a_request_stays_a_body(web, proxy):
    hidden = POST % web.port
    sized = f"Content-Length: {len(hidden)}\r\n\r\n".encode()

    raw(proxy(CHANGE), get(web).removesuffix(b"\r\n") + sized + hidden)

    assert web.requests == [("GET", "/")]
    assert web.bodies == [hidden]


@pytest.mark.parametrize("header", ["Content-Length: 11", "Transfer-Encoding: chunked"])
def test_a_body_reaches_no_server_where_only_reading_is_allowed(web, proxy, header):
    """A server that does not speak HTTP would read it as commands."""
    answer = raw(proxy(), get(web, "/", header) + b"flush_all\r\n")

    assert status_of(answer) == 403
    assert web.requests == []


@pytest.mark.parametrize(
    "header",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: +5",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding : chunked",
        "X-Nul: a\0b",
        "X-Cr: a\rb",
        "Host: y",
        "X-Long: " + "x" * 1_000_000,
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(web, proxy, records, header):
    answer = raw(proxy(CHANGE), get(web, "/", header))

    assert status_of(answer) in (400, 431, 501)
    assert web.requests == []
    assert records == []


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET * HTTP/1.1",
        "GET 127.0.0.1:{port} HTTP/1.1",
        "GET //127.0.0.1:{port}/ HTTP/1.1",
        "GET https://127.0.0.1:{port}/ HTTP/1.1",
        "GET ftp://127.0.0.1:{port}/ HTTP/1.1",
        "GET http:/127.0.0.1:{port}/ HTTP/1.1",
        "GET http://user:word@127.0.0.1:{port}/ HTTP/1.1",
        "GET http://a@127.0.0.1:{port}/ HTTP/1.1",
        "GET http://127.0.0.1:{port}\\@b/ HTTP/1.1",
        "GET http://127.0.0.1:{port}#@b/ HTTP/1.1",
        "GET http://127.0.0.1:{port}/#b HTTP/1.1",
        "GET http://127.0.0.1:{port}/a b HTTP/1.1",
        "GET  http://127.0.0.1:{port}/ HTTP/1.1",
        "GET http://127.0.0.1:0/ HTTP/1.1",
        "GET http://127.0.0.1:+{port}/ HTTP/1.1",
        "GET http://127.0.0.1:65536/ HTTP/1.1",
        "GET http://127.0.0.1:/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http://[::1%25lo]:{port}/ HTTP/1.1",
        "GET http://%31%32%37.0.0.1:{port}/ HTTP/1.1",
        "GET http://127.0.0.1:{port}/",
        "CONNECT http://127.0.0.1:{port} HTTP/1.1",
        "CONNECT 127.0.0.1 HTTP/1.1",
        "CONNECT a@127.0.0.1:{port} HTTP/1.1",
        "CONNECT 127.0.0.1:{port}/ HTTP/1.1",
        "nonsense",
        "\x16\x03\x01",
    ],
)
def test_an_address_that_is_not_clear_is_refused(web, proxy, records, line):
    answer = raw(proxy(CHANGE), f"{line.format(port=web.port)}\r\nHost: x\r\n\r\n".encode())

    assert status_of(answer) == 400
    assert (web.requests, records) == ([], [])


def test_a_tunnel_with_a_body_is_refused(web, proxy):
    head = f"CONNECT 127.0.0.1:{web.port} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"

    assert status_of(raw(proxy(CHANGE), head.encode())) == 400


def test_lines_without_a_carriage_return_are_written_again(web, proxy):
    answer = raw(proxy(), get(web, "/", "X-Kept: 1").replace(b"\r\n", b"\n"))

    assert status_of(answer) == 200
    assert web.requests == [("GET", "/")]
    assert web.headers[0]["x-kept"] == "1"


def test_headers_that_change_the_method_or_the_protocol_are_removed(web, proxy):
    raw(
        proxy(),
        get(
            web,
            "/",
            "X-HTTP-Method-Override: DELETE",
            "Connection: Upgrade, X-Secret",
            "Upgrade: websocket",
            "X-Secret: 1",
            "Proxy-Authorization: Basic eA==",
            "Accept: text/html",
        ),
    )

    assert set(web.headers[0]) == {"host", "accept", "connection"}
    assert web.headers[0]["connection"] == "close"


def test_an_unfinished_request_ends_in_time(web, proxy):
    port = proxy(head_seconds=0.5)
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(b"GET http://127")
        answer = client.recv(65536)

    assert status_of(answer) == 408


def test_a_request_that_arrives_byte_by_byte_ends_in_time(web, proxy):
    port = proxy(head_seconds=0.5)
    stop = threading.Event()
    with socket.create_connection(("127.0.0.1", port), 10) as client:

        def drip() -> None:
            while not stop.wait(0.05):
                client.send(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        client.sendall(get(web).removesuffix(b"\r\n") + b"X-Slow: ")
        thread.start()
        answer = client.recv(65536)
        stop.set()
        thread.join()

    assert status_of(answer) == 408
    assert web.requests == []


def test_a_server_that_does_not_answer_ends_in_time(web, proxy):
    assert status_of(raw(proxy(idle_seconds=0.5), get(web, "/silent"))) == 504


def test_a_silent_tunnel_ends_in_time(web, proxy):
    head = f"CONNECT 127.0.0.1:{web.port} HTTP/1.1\r\nHost: x\r\n\r\n"

    answer = raw(proxy(CHANGE, idle_seconds=0.5), head.encode())

    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"


def test_bytes_behind_a_tunnel_request_reach_the_server(web, proxy):
    inner = f"GET /inner HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\nConnection: close\r\n\r\n"
    head = f"CONNECT 127.0.0.1:{web.port} HTTP/1.1\r\nHost: x\r\n\r\n{inner}"

    answer = raw(proxy(CHANGE), head.encode())

    assert answer.endswith(b"hello")
    assert web.requests == [("GET", "/inner")]


def test_an_invalid_answer_becomes_a_gateway_error(web, proxy):
    assert status_of(raw(proxy(), get(web, "/nonsense"))) == 502


def test_an_answer_that_breaks_off_does_not_look_like_an_end(web, proxy):
    answer = raw(proxy(), get(web, "/half"))

    assert answer.endswith(b"half")
    assert b"content-length: 100" in answer.lower()


def test_an_absent_server_or_name_becomes_a_gateway_error(proxy, records):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    at = proxy()

    for host in (f"127.0.0.1:{port}", "no-such-name.invalid"):
        request = f"GET http://{host}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        assert status_of(raw(at, request)) == 502
    assert [record.host for record in records] == ["127.0.0.1", "no-such-name.invalid"]


# Addresses.


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "LOCALHOST", "127.1", "2130706433"),
        *("0x7f000001", "0177.0.0.1", "0.0.0.0", "0", "127.9.9.9", "[::1]", "[::]"),  # noqa: S104
        *("[::ffff:127.0.0.1]", "[0:0:0:0:0:ffff:7f00:1]"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_own_ports_are_refused_under_every_name_of_this_host(web, proxy, records, host, method):
    port = proxy(replace(CHANGE, own_ports=frozenset({web.port})))
    target = f"{host}:{web.port}" if method == "CONNECT" else f"http://{host}:{web.port}/"

    answer = raw(port, f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    assert status_of(answer) == 403
    assert web.requests == []
    assert [record.allowed for record in records] == [False]


def test_other_ports_of_this_host_are_reached_by_name(web, proxy):
    rules = replace(OBSERVE, own_ports=frozenset({web.port - 1}))

    assert curl(proxy(rules), f"http://localhost:{web.port}/").stdout == "hello"


def test_a_name_is_resolved_once_and_only_a_judged_address_is_used(web, proxy, monkeypatch):
    """A name server that answers differently the second time."""
    real, asked = socket.getaddrinfo, []

    def getaddrinfo(host, *words, **options):
        if host != "rebind.example":
            return real(host, *words, **options)
        asked.append(host)
        return real("192.0.2.1" if len(asked) > 1 else "127.0.0.1", *words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    request = f"GET http://rebind.example:{web.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    assert status_of(raw(proxy(), request)) == 200
    assert asked == ["rebind.example"]


def test_a_name_with_one_refused_address_is_refused(web, proxy, monkeypatch):
    real = socket.getaddrinfo

    def getaddrinfo(host, *words, **options):
        if host != "two.example":
            return real(host, *words, **options)
        return [
            *real("127.0.0.1", *words, **options),
            *real("169.254.169.254", *words, **options),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    request = f"GET http://two.example:{web.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    assert status_of(raw(proxy(), request)) == 403
    assert web.requests == []


# Many, and the end.


def test_a_request_is_not_passed_on_when_it_cannot_be_recorded(web):
    def fail(record: RequestRecord) -> None:
        raise OSError("the database is locked")

    listener = socket.create_server(("127.0.0.1", 0))
    with HttpProxy(CHANGE, fail).serving(listener):
        answer = raw(listener.getsockname()[1], get(web))

    assert (answer, web.requests) == (b"", [])


def test_more_clients_than_threads_are_all_answered(web, proxy):
    port = proxy()

    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda _number: raw(port, get(web)), range(200)))

    assert {status_of(answer) for answer in answers} == {200}


def test_the_end_closes_the_listener_and_its_connections(web):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with HttpProxy(CHANGE).serving(listener):
        client = socket.create_connection(("127.0.0.1", port), 10)
        client.sendall(f"CONNECT 127.0.0.1:{web.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert status_of(client.recv(65536)) == 200

    with client:
        assert client.recv(65536) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)


def test_two_listeners_are_served_at_once(web):
    proxy = HttpProxy(OBSERVE)
    first, second = (socket.create_server(("127.0.0.1", 0)) for _number in range(2))
    ports = [listener.getsockname()[1] for listener in (first, second)]
    with proxy.serving(first):
        with proxy.serving(second):
            assert [status_of(raw(port, get(web))) for port in ports] == [200, 200]
        assert status_of(raw(ports[0], get(web))) == 200


INSIDE = """
import socket, sys, urllib.request
listener = socket.create_server(("127.0.0.1", 3128))
with socket.socket(fileno=int(sys.argv[1])) as outside:
    socket.send_fds(outside, [b"x"], [listener.fileno()])
listener.close()
handler = urllib.request.ProxyHandler({"http": "http://127.0.0.1:3128"})
print(urllib.request.build_opener(handler).open(sys.argv[2], timeout=10).read().decode())
urllib.request.urlopen(sys.argv[2], timeout=10)
"""


def test_a_listener_of_another_network_namespace_is_the_way_out(web):
    """Without the proxy the program inside does not reach the server."""
    here, there = socket.socketpair()
    words = [
        "bwrap",
        "--unshare-net",
        "--ro-bind",
        "/",
        "/",
        "--",
        "/usr/bin/python3",
        "-c",
        INSIDE,
    ]
    url = f"http://127.0.0.1:{web.port}/"
    with (
        here,
        subprocess.Popen(
            [*words, str(there.fileno()), url],
            pass_fds=[there.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        there.close()
        _data, [descriptor], _flags, _address = socket.recv_fds(here, 1, 1)
        with HttpProxy(OBSERVE).serving(socket.socket(fileno=descriptor)):
            printed, complaints = program.communicate(timeout=30)

    assert printed == "hello\n"
    assert "Connection refused" in complaints
    assert web.requests == [("GET", "/")]


def test_https_passes_through_a_tunnel_to_a_listed_host_alone(proxy, tmp_path):
    with https_server(tmp_path) as port:
        listed = proxy(HttpRules(connect=Connect.LISTED, hosts=(f"localhost:{port}",)))

        assert curl(listed, "-k", f"https://localhost:{port}/").stdout == "secure"
        assert curl(listed, "-k", f"https://127.0.0.1:{port}/").returncode == 56


@contextmanager
def https_server(directory: Path) -> Iterator[int]:
    """A server that greets each client over TLS."""
    context = tls_context(directory)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _address = listener.accept()
            with context.wrap_socket(client, server_side=True) as secured:
                secured.recv(65536)
                secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecure")

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
