"""The API proxy when one side breaks: nothing hangs, and no break looks like an end."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from escalation.agent.stream import Tokens
from escalation.sandbox import api_proxy
from escalation.sandbox.api_proxy import ApiAddress, BodyMemory, read_ledger
from tests.escalation.sandbox.api_proxy.played_api import (
    CHUNKED,
    LAST_CHUNK,
    STREAM,
    USAGE,
    answer_error,
    answer_json,
    answer_well,
    chunk,
    head,
    message_start,
    reset,
)

BEGUN = Tokens(input=11, output=1, cache_read=33, cache_creation=44)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503, 529])
def test_an_error_of_the_api_is_passed_on_and_costs_nothing(run_with, status):
    run = run_with(answer_error(status, "request-id: req_1"))

    answer = run.ask()

    assert (answer.status, answer.getheader("request-id")) == (status, "req_1")
    assert json.loads(answer.read())["error"]["message"] == "no"
    assert run.api_proxy.spending.answers == 0


def test_an_api_that_refuses_the_connection_is_a_fault_to_try_again(run_with):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = ApiAddress(host="127.0.0.1", port=closed.getsockname()[1])
    run = run_with(answer_well, address=nobody)

    answer = run.ask()

    assert (answer.status, answer.getheader("x-should-retry")) == (502, None)
    assert json.loads(answer.read())["error"] == {
        "type": "api_error",
        "message": "The API cannot be reached: Connection refused.",
    }
    assert run.api_proxy.spending.answers == 0


def test_an_api_that_hangs_up_without_a_word_is_a_fault_to_try_again(run_with):
    run = run_with(lambda connection, _api: reset(connection))

    answer = run.ask()

    assert answer.status == 502
    assert "The API cannot be reached" in answer.read().decode()


def test_what_is_no_http_is_a_fault(run_with):
    run = run_with(lambda connection, _api: connection.sendall(b"hello\r\n\r\n"))

    assert run.ask().status == 502


def test_a_redirect_is_not_followed(run_with):
    run = run_with(answer_error(302, "location: https://elsewhere.example/v1/messages"))

    answer = run.ask()

    assert (answer.status, answer.getheader("location")) == (502, None)


def chunked_and_reset(connection, _api):
    connection.sendall(head(200, CHUNKED) + chunk(message_start(output_tokens=1)))
    reset(connection)


def chunked_and_closed(connection, _api):
    connection.sendall(head(200, CHUNKED) + chunk(message_start(output_tokens=1)))
    raise ConnectionAbortedError


def closed_within_a_chunk(connection, _api):
    connection.sendall(head(200, CHUNKED) + chunk(message_start(output_tokens=1)) + b"ff\r\nhal")
    raise ConnectionAbortedError


def shorter_than_stated(connection, _api):
    connection.sendall(head(200, "content-length: 9999") + message_start(output_tokens=1))
    raise ConnectionAbortedError


def bad_chunk(connection, _api):
    connection.sendall(head(200, CHUNKED) + chunk(message_start(output_tokens=1)) + b"zz\r\n")
    raise ConnectionAbortedError


@pytest.mark.parametrize(
    "script",
    [
        chunked_and_reset,
        chunked_and_closed,
        closed_within_a_chunk,
        shorter_than_stated,
        bad_chunk,
    ],
)
def test_a_stream_that_breaks_off_does_not_look_like_one_that_ends(run_with, script):
    run = run_with(script)
    answer = run.ask()

    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer.read()

    assert run.api_proxy.spending.tokens == BEGUN
    assert run.api_proxy.spending.cut_off == 1
    assert read_ledger(run.ledger) == run.api_proxy.spending


def test_an_answer_without_a_length_ends_with_its_connection(run_with):
    def close_at_the_end(connection, _api):
        connection.sendall(head(200) + b"".join(STREAM))
        raise ConnectionAbortedError

    run = run_with(close_at_the_end)

    assert run.ask().read() == b"".join(STREAM)
    assert run.api_proxy.spending.cut_off == 0
    assert run.ask().read() == b"".join(STREAM)


def test_a_dripping_answer_arrives_byte_by_byte(run_with):
    def drip(connection, _api):
        connection.sendall(head(200, CHUNKED))
        for byte in b"".join(STREAM):
            connection.sendall(chunk(bytes([byte])))
        connection.sendall(LAST_CHUNK)

    run = run_with(drip)

    assert run.ask().read() == b"".join(STREAM)
    assert run.api_proxy.spending.tokens.output == 22


def large_stream(connection, _api):
    connection.sendall(head(200, CHUNKED) + chunk(STREAM[0]))
    piece = chunk(b"data: " + b"x" * 1_000_000)
    for _megabyte in range(50):
        connection.sendall(piece)
    connection.sendall(chunk(b"\n\n" + STREAM[-1]) + LAST_CHUNK)


def large_body(connection, _api):
    connection.sendall(head(200, "content-length: 50000000", kind="application/json"))
    for _megabyte in range(50):
        connection.sendall(b"x" * 1_000_000)


@pytest.mark.parametrize(("script", "complete"), [(large_stream, True), (large_body, False)])
def test_a_very_large_answer_is_not_held_in_memory(run_with, script, complete):
    run = run_with(script)
    answer = run.ask()
    tracemalloc.start()
    try:
        received = 0
        while piece := answer.read1(65536):
            received += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert received >= 50_000_000
    assert peak < 40_000_000
    assert run.api_proxy.spending.cut_off == (not complete)


def wait_until_left(connection, api):
    connection.settimeout(10)
    if connection.recv(1) == b"":
        api.client_left.set()
    raise ConnectionAbortedError


def stream_until_left(connection, api):
    connection.sendall(head(200, CHUNKED) + chunk(message_start(output_tokens=1)))
    wait_until_left(connection, api)


def close_stream_until_left(connection, api):
    connection.sendall(head(200, "connection: close") + message_start(output_tokens=1))
    wait_until_left(connection, api)


@pytest.mark.parametrize("script", [stream_until_left, close_stream_until_left])
def test_a_client_that_disconnects_in_the_middle_cuts_the_request(run_with, script):
    run = run_with(script)
    connection = run.connect()
    answer = run.ask(connection=connection)
    answer.read1()
    answer.close()
    connection.close()

    assert run.api.client_left.wait(5)
    assert read_ledger(run.ledger).tokens == BEGUN


def test_a_client_that_disconnects_before_the_answer_cuts_the_request(run_with):
    run = run_with(wait_until_left)
    connection = run.connect()
    body = b'{"model": "haiku"}'
    connection.request("POST", "/v1/messages", body, {"x-api-key": run.serving.token})
    eventually(lambda: run.api.requests)
    connection.close()

    assert run.api.client_left.wait(5)
    eventually(lambda: run.api_proxy.spending.cut_off == 1)


def eventually(fact) -> None:
    deadline = time.monotonic() + 10
    while not fact():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


@pytest.mark.parametrize(
    "garbage",
    [
        b"data: {\n\ndata: []\n\ndata: null\n\n",
        b'data: {"type": "message_start", "message": []}\n\n',
        b'data: {"type": "message_start", "message": {"usage": {"input_tokens": "x"}}}\n\n',
        b'data: {"type": "message_delta", "usage": {"output_tokens": -5}}\n\n',
        b'data: "message_start"' + b"[" * 200_000 + b"\n\n",
        b"\x00\xff\xfe\r\r\n\n\n:comment\n\nid: 1\n\n",
    ],
)
def test_garbage_goes_through_and_counts_nothing(run_with, garbage):
    def garble(connection, _api):
        connection.sendall(head(200, CHUNKED) + chunk(garbage) + LAST_CHUNK)

    run = run_with(garble)

    assert run.ask().read() == garbage
    assert run.api_proxy.spending.tokens == Tokens()
    assert run.api_proxy.spending.cut_off == 1


def test_a_packed_answer_is_counted_too(run_with):
    packed = gzip.compress(b"".join(STREAM))

    def answer_packed(connection, _api):
        connection.sendall(head(200, CHUNKED, "content-encoding: gzip") + chunk(packed))
        connection.sendall(LAST_CHUNK)

    run = run_with(answer_packed)
    answer = run.ask()

    assert answer.getheader("content-encoding") == "gzip"
    assert answer.read() == packed
    assert run.api_proxy.spending.tokens.output == 22


def test_a_connection_that_the_api_has_closed_meanwhile_is_not_used(run_with):
    def answer_once(connection, api):
        answer_json(connection, api)
        raise ConnectionAbortedError

    run = run_with(answer_once)

    statuses = [run.ask({"model": "haiku"}).status for _request in range(5)]

    assert statuses == [200] * 5


def test_a_hundred_requests_at_once_are_all_answered_and_counted(run_with):
    run = run_with(answer_well)

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _number: run.ask().read(), range(100)))

    assert answers == [b"".join(STREAM)] * 100
    assert run.api_proxy.spending.answers == 100
    assert run.api_proxy.spending.tokens.output == 100 * USAGE["output_tokens"]
    assert read_ledger(run.ledger) == run.api_proxy.spending


def raw(run, request: bytes) -> bytes:
    host, port = run.address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("POST /v1/messages HTTP/1.1|transfer-encoding: chunked", b"411"),
        ("POST /v1/messages HTTP/1.1", b"411"),
        ("POST /v1/messages HTTP/1.1|content-length: -1", b"411"),
        ("POST /v1/messages HTTP/1.1|content-length: 2|content-length: 3", b"411"),
        ("POST /v1/messages HTTP/1.1|content-length: 99999999999", b"411"),
        ("POST /v1/messages HTTP/1.0|content-length: 0", b"505"),
        ("POST /v1/messages HTTP/1.1|content-length: 0|x-a: 1| folded: 2", b"400"),
        ("POST /v1/messages?\u00e9 HTTP/1.1|content-length: 0", b"404"),
        ("BREW /v1/messages HTTP/1.1", b"501"),
    ],
)
def test_a_request_that_is_not_clear_does_not_reach_the_api(run_with, lines, status):
    run = run_with(answer_well)
    request = [*lines.split("|"), f"x-api-key: {run.serving.token}", "", ""]

    answer = raw(run, "\r\n".join(request).encode("latin-1"))

    assert answer.split()[1:2] == [status]
    assert run.api.requests == []


def test_half_a_request_is_not_sent(run_with):
    run = run_with(answer_well)
    opening = f"POST /v1/messages HTTP/1.1\r\nx-api-key: {run.serving.token}\r\n"

    assert raw(run, f"{opening}content-length: 100\r\n\r\n{{".encode()) == b""
    assert run.api.requests == []


def raw_connection(run) -> socket.socket:
    host, port = run.address.split(":")
    client = socket.create_connection((host, int(port)), timeout=20)
    run.stack.callback(client.close)
    return client


def head_of(run, *lines: str) -> bytes:
    token = f"x-api-key: {run.serving.token}"
    return "\r\n".join(["POST /v1/messages HTTP/1.1", token, *lines]).encode()


def drip_until_cut(client: socket.socket, drop: bytes) -> bool:
    """Send without end; return True once the other side has closed the connection."""
    client.settimeout(0.01)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            client.sendall(drop)
            if client.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="a request line"),
        pytest.param(["x-long: "], id="a header"),
        pytest.param(["content-length: 1000000", "", ""], id="a body"),
        pytest.param(["x-api-key: wrong", "content-length: 1000000", "", ""], id="a refused body"),
    ],
)
def test_a_request_that_never_ends_is_cut(run_with, monkeypatch, lines):
    monkeypatch.setattr(api_proxy, "REQUEST_SECONDS", 0.2)
    run = run_with(answer_well)
    client = raw_connection(run)
    client.sendall(head_of(run, *lines))

    assert drip_until_cut(client, b"x")
    assert run.api.requests == []
    monkeypatch.setattr(api_proxy, "REQUEST_SECONDS", 60.0)
    assert run.ask().status == 200


def test_a_connection_without_a_request_is_closed(run_with, monkeypatch):
    monkeypatch.setattr(api_proxy, "IDLE_SECONDS", 0.1)
    run = run_with(answer_json)

    assert raw_connection(run).recv(1) == b""


def test_a_connection_without_a_further_request_is_closed(run_with, monkeypatch):
    def answer_and_shorten_the_wait(connection, api):
        monkeypatch.setattr(api_proxy, "IDLE_SECONDS", 0.1)
        answer_json(connection, api)

    run = run_with(answer_and_shorten_the_wait)
    connection = run.connect()

    assert run.ask(connection=connection).read()
    assert connection.sock.recv(1) == b""


def test_a_head_without_end_is_refused(run_with):
    run = run_with(answer_well)
    client = raw_connection(run)

    client.sendall(head_of(run, *(f"x-{number}: {'x' * 10_000}" for number in range(20)), "", ""))

    assert client.recv(100).split()[1] == b"431"
    assert run.api.requests == []


def test_a_body_waits_until_there_is_memory_for_it(monkeypatch):
    monkeypatch.setattr(api_proxy, "MAX_HELD_BYTES", 10)
    memory, waiting = BodyMemory(), threading.Event()
    held = []

    def hold() -> None:
        waiting.set()
        with memory.holding(7):
            held.append(7)

    with memory.holding(5):
        second = threading.Thread(target=hold)
        second.start()
        waiting.wait(10)
        with memory.holding(5):
            assert held == []
    second.join(10)

    assert held == [7]


def test_a_body_that_finds_no_memory_in_time_is_cut(run_with, monkeypatch):
    monkeypatch.setattr(api_proxy, "MAX_HELD_BYTES", 10)
    monkeypatch.setattr(api_proxy, "REQUEST_SECONDS", 0.2)
    run = run_with(answer_well)

    with pytest.raises((OSError, http.client.HTTPException)):
        run.ask({"model": "haiku"})

    assert run.api.requests == []


def test_more_connections_than_are_allowed_are_closed(run_with, monkeypatch):
    monkeypatch.setattr(api_proxy, "MAX_CONNECTIONS", 2)
    run = run_with(answer_json)
    used = [run.connect() for _number in range(2)]
    for connection in used:
        assert run.ask({"model": "haiku"}, connection=connection).read()

    with pytest.raises((OSError, http.client.HTTPException)):
        run.ask({"model": "haiku"})

    used[0].close()
    eventually(lambda: answers(run))


def answers(run) -> bool:
    try:
        return run.ask({"model": "haiku"}).status == 200
    except (OSError, http.client.HTTPException):
        return False


def test_the_end_of_a_api_proxy_waits_for_nobody_and_loses_nothing(run_with):
    run = run_with(stream_until_left)
    answers = [run.ask() for _client in range(3)]
    for answer in answers:
        answer.read1()

    started = time.monotonic()
    run.end()

    assert time.monotonic() - started < 3
    assert run.api_proxy.spending.cut_off == 3
    assert read_ledger(run.ledger).tokens.input == 33
