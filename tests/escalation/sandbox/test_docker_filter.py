from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from escalation.sandbox.broker import MOST_CONNECTIONS
from escalation.sandbox.docker_filter import DockerFilter, engine_socket
from escalation.sandbox.proof.docker_engine import DockerEngine, docker_engine
from tests.escalation.sandbox.docker_cases import filters_before

CREATE = b"POST /containers/create HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DockerEngine]:
    with docker_engine(tmp_path / "engine.sock") as engine:
        yield engine


@pytest.fixture
def filtered(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    with filters_before(tmp_path / "engine.sock") as at:
        yield at


def raw(path: Path, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


# What no honest client sends.


KILL = b"POST /containers/web/kill HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "opening",
    [
        b"\r\n",
        b"Content-Length: %d\r\n\r\n" % len(KILL),
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
        b"Connection: keep-alive\r\n\r\n",
    ],
)
def test_a_second_request_on_one_connection_is_ignored(engine, filtered, opening):
    answer = raw(filtered(1), b"GET /_ping HTTP/1.1\r\nHost: x\r\n" + opening + KILL)

    assert status_of(answer) == 200
    assert b"connection: close" in answer.lower()
    assert len(engine.requests) == 1
    assert engine.changes == []


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: +5",
        b"Content-Length: -1",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding : chunked",
        b"X-Nul: a\x00b",
        b"X-Cr: a\rb",
        b"X-Long: " + b"x" * 300_000,
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(engine, filtered, head):
    answer = raw(
        filtered(3), b"POST /containers/web/kill HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n"
    )

    assert 400 <= status_of(answer) < 502
    assert engine.requests == []


@pytest.mark.parametrize(
    "line",
    [
        b"GET /containers/../volumes HTTP/1.1",
        b"GET http://x/version HTTP/1.1",
        b"CONNECT x:1 HTTP/1.1",
        b"GET /%2e%2e/version HTTP/1.1",
        b"get /version HTTP/1.1",
        b"nonsense",
        b"\x16\x03\x01\x00",
    ],
)
def test_a_line_that_is_not_clear_is_refused(engine, filtered, line):
    answer = raw(filtered(3), line + b"\r\nHost: x\r\n\r\n")

    assert status_of(answer) == 400
    assert engine.requests == []


def test_the_engine_gets_the_request_that_was_decided_on(engine, filtered):
    raw(filtered(1), b"GET /v1.47//containers/%77eb/json?size=1 HTTP/1.1\r\nHost: x\r\n\r\n")

    assert engine.requests == ["GET /containers/web/json"]


def chunked(body: bytes) -> bytes:
    return b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def sized(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("framed", [chunked, sized])
def test_a_body_is_checked_in_every_encoding(engine, filtered, framed):
    path = filtered(3)
    refused = json.dumps({"hostConfig": {"privileged": True}}).encode()
    passed = json.dumps({"Image": "shop", "HostConfig": {"Privileged": False}}).encode()

    assert status_of(raw(path, CREATE + framed(refused))) == 403
    assert engine.requests == []
    assert status_of(raw(path, CREATE + framed(passed))) == 201
    assert json.loads(engine.bodies[-1]) == json.loads(passed)


@pytest.mark.parametrize("body", [b"{", b'{"a": 1, "a": 2}', b"[" * 100_000, b"{} {}"])
def test_a_body_that_cannot_be_parsed_is_refused(engine, filtered, body):
    assert status_of(raw(filtered(3), CREATE + sized(body))) == 400
    assert engine.requests == []


def test_a_body_that_is_too_long_is_refused(engine, filtered):
    assert status_of(raw(filtered(3), CREATE + sized(b" " * 5_000_000))) == 413
    assert engine.requests == []


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(engine, filtered):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(filtered(3)))
        client.sendall(CREATE + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"{}")
        assert client.recv(65536).startswith(b"HTTP/1.1 201 ")


def test_a_refused_upload_is_answered_before_its_end(engine, filtered):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(filtered(1)))
        client.sendall(b"POST /build HTTP/1.1\r\nHost: x\r\nContent-Length: 900000000\r\n\r\n")
        assert status_of(client.recv(65536)) == 403


def test_half_a_request_is_not_passed_on(engine, filtered):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(filtered(3)))
        client.sendall(CREATE + b"Content-Length: 100\r\n\r\n{}")
        client.shutdown(socket.SHUT_WR)
        assert status_of(client.recv(65536)) == 400

    assert engine.requests == []


def test_a_terminal_that_was_refused_stays_a_request(filtered, tmp_path):
    """The engine answers 404 and would listen on: the client must not speak to it any more."""
    received: list[bytes] = []
    answers = [
        b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"Id": "abc"}',
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
    ]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine.sock"))
        listener.listen()

        def serve() -> None:
            for words in answers:
                client, _address = listener.accept()
                with client:
                    received.append(client.recv(65536))
                    client.sendall(words)
                    received.extend(iter(lambda client=client: client.recv(65536), b""))

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        answer = raw(
            filtered(3),
            b"POST /containers/web/attach HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
            b"Upgrade: tcp\r\n\r\nPOST /volumes/prune HTTP/1.1\r\nHost: x\r\n\r\n",
        )
        serving.join(10)

    assert status_of(answer) == 404
    assert [one.split(b" HTTP")[0] for one in received] == [
        b"GET /containers/web/json",
        b"POST /containers/abc/attach",
    ]


def test_the_way_past_the_filter_is_hidden_under_every_name(engine, filtered, tmp_path):
    link = tmp_path.with_name(f"{tmp_path.name}-link")
    link.symlink_to(tmp_path)
    path = filtered(3)

    for source in (tmp_path, link, tmp_path / "engine.sock"):
        body = json.dumps({"HostConfig": {"Binds": [f"{source}:/x"]}}).encode()
        assert status_of(raw(path, CREATE + sized(body))) == 403
    assert engine.requests == []


def test_a_request_is_not_passed_on_when_the_rules_fail(engine, filtered, monkeypatch):
    monkeypatch.setattr("escalation.sandbox.docker_rules.Rules.objection", lambda *_words: 1 / 0)

    assert raw(filtered(3), KILL) == b""
    assert engine.changes == []


# An engine that breaks.


@pytest.fixture
def broken_engine(tmp_path: Path) -> Iterator[Callable[[bytes], None]]:
    """Says the same bytes to everybody, then hangs up."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine.sock"))
        listener.listen()

        def say(words: bytes) -> None:
            def serve() -> None:
                client, _address = listener.accept()
                with client:
                    client.recv(65536)
                    client.sendall(words)

            threading.Thread(target=serve, daemon=True).start()

        yield say


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf",
    ],
)
def test_an_answer_that_breaks_off_does_not_look_like_an_end(broken_engine, filtered, words):
    broken_engine(words)

    answer = raw(filtered(1), b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")

    assert answer.endswith(b"half") or answer.endswith(b"half\r\n")
    assert b"\r\n0\r\n" not in answer


@pytest.mark.parametrize(
    "words", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 101 Hi\r\nUpgrade: x\r\n\r\n"]
)
def test_an_invalid_answer_of_the_engine_is_not_passed_on(broken_engine, filtered, words):
    broken_engine(words)

    assert status_of(raw(filtered(1), b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")) == 502


# Many, and the end.


def test_a_hundred_clients_at_once_are_all_answered(engine, filtered):
    path = filtered(1)
    request = b"GET /containers/json HTTP/1.1\r\nHost: x\r\n\r\n"

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _number: raw(path, request), range(100)))

    assert {status_of(answer) for answer in answers} == {200}


def test_the_end_removes_the_socket_and_closes_connections(engine, tmp_path):
    path = tmp_path / "filter.sock"
    with socket.socket(socket.AF_UNIX) as client:
        with DockerFilter(path, tmp_path / "engine.sock", 1).serving():
            assert path.stat().st_mode & 0o777 == 0o600
            client.settimeout(10)
            client.connect(str(path))
            client.sendall(b"GET /containers/web/logs?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(65536)

        while client.recv(65536):
            pass

    assert not path.exists()
    assert engine.follower_left.wait(30)


def test_an_engine_may_be_reached_by_tcp(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _address = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")

        threading.Thread(target=serve, daemon=True).start()
        address = ("127.0.0.1", listener.getsockname()[1])
        with DockerFilter(tmp_path / "filter.sock", address, 1).serving() as path:
            answer = raw(path, b"GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n")

    assert answer.endswith(b"\r\n\r\nOK")


def sent_slowly(path: Path, head: bytes, drop: bytes) -> bytes:
    """Sends a beginning, then the same bytes again and again until there is an answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(head)
        while not select.select([client], [], [], 0.02)[0]:
            client.sendall(drop)
        return client.recv(65536)


def test_a_head_that_never_ends_is_answered_in_time(engine, filtered, monkeypatch):
    monkeypatch.setattr("escalation.sandbox.docker_filter.HEAD_SECONDS", 0.3)

    answer = sent_slowly(filtered(1), b"GET /version HTTP/1.1\r\nX: ", b"x")

    assert status_of(answer) == 408
    assert engine.requests == []


def test_a_body_that_never_ends_is_answered_in_time(engine, filtered, monkeypatch):
    monkeypatch.setattr("escalation.sandbox.docker_filter.HEAD_SECONDS", 0.3)

    answer = sent_slowly(filtered(3), CREATE + b"Content-Length: 200000\r\n\r\n", b" ")

    assert status_of(answer) == 408
    assert engine.changes == []


@pytest.mark.parametrize("limit", ["UPLOAD_SECONDS", "PAUSE_SECONDS"])
def test_an_upload_that_stops_is_ended(engine, filtered, monkeypatch, limit):
    monkeypatch.setattr(f"escalation.sandbox.broker.{limit}", 0.3)

    answer = raw(filtered(3), b"POST /build HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf")

    assert status_of(answer) == 504


def test_clients_beyond_the_limit_are_served_when_others_have_gone(engine, filtered):
    path = filtered(1)
    waiting = [socket.socket(socket.AF_UNIX) for _number in range(MOST_CONNECTIONS + 1)]
    for client in waiting:
        client.connect(str(path))
    last = waiting[-1]
    last.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")

    assert not select.select([last], [], [], 0.3)[0]
    waiting[0].close()
    assert select.select([last], [], [], 10)[0]
    for client in waiting:
        client.close()


def test_the_operators_engine_is_found_by_its_variable(engine, tmp_path):
    socket_path = tmp_path / "engine.sock"

    assert engine_socket({"DOCKER_HOST": f"unix://{socket_path}"}) == socket_path
    assert engine_socket({"DOCKER_HOST": f"unix://{tmp_path}/none"}) is None
    assert engine_socket({"DOCKER_HOST": "tcp://10.0.0.1:2375"}) is None
    assert engine_socket({"DOCKER_HOST": "ssh://me@host"}) is None


def test_the_engine_of_podman_is_found(engine, tmp_path, monkeypatch):
    monkeypatch.setattr("escalation.sandbox.docker_filter.DEFAULT_SOCKETS", ("/nowhere",))
    (tmp_path / "podman").mkdir()
    (tmp_path / "engine.sock").rename(tmp_path / "podman" / "podman.sock")

    found = engine_socket({"XDG_RUNTIME_DIR": str(tmp_path)})

    assert found == tmp_path / "podman" / "podman.sock"
    assert engine_socket({}) is None
