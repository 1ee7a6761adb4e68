"""The way to the API through TLS and proxies, each a real one on loopback."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from dataclasses import dataclass

import pytest

from escalation.errors import CannotRun
from escalation.sandbox.api_proxy import ApiAddress, Connections, Proxy
from tests.escalation.sandbox.api_proxy.played_api import (
    CHUNKED,
    STREAM,
    PlayedApi,
    Script,
    answer_json,
    answer_well,
    chunk,
    head,
    message_start,
    played_api,
    upstream_at,
)

ELSEWHERE = ApiAddress(host="api.example", port=8080)


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """A certificate that no system knows, and what puts a script behind it."""
    folder = tmp_path_factory.mktemp("certificate")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *made, *subject, *files], check=True, stderr=-3)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, lambda script: BehindTls(context, script)


@dataclass
class BehindTls:
    """Wraps each connection before a request is read from it."""

    context: ssl.SSLContext
    script: Script

    def granted_mounts(self, connection: socket.socket) -> socket.socket:
        return self.context.wrap_socket(connection, server_side=True)

    def __call__(self, connection: socket.socket, api: PlayedApi) -> None:
        self.script(connection, api)


def test_a_plain_api_is_asked_through_the_proxy_by_its_whole_address(run_with):
    with played_api(answer_well) as proxy:
        run = run_with(
            answer_json,
            address=ELSEWHERE,
            prefix="/x",
            proxy=Proxy(
                address=ApiAddress(host="127.0.0.1", port=proxy.port),
                headers={"Proxy-Authorization": "Basic abc"},
            ),
        )

        assert run.ask(path="/v1/messages").read() == b"".join(STREAM)

    [request] = proxy.requests
    assert request.line == "POST http://api.example:8080/x/v1/messages HTTP/1.1"
    assert request.headers["host"] == "api.example:8080"
    assert request.headers["proxy-authorization"] == "Basic abc"
    assert run.api.requests == []


def test_a_secure_api_is_reached_by_a_tunnel_that_never_sees_the_key(run_with):
    asked = []

    def refuse(connection: socket.socket, api) -> None:
        asked.append(api.requests[-1])
        connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        raise ConnectionAbortedError

    with played_api(refuse) as proxy:
        run = run_with(
            answer_json,
            address=ELSEWHERE,
            secure=True,
            proxy=Proxy(
                address=ApiAddress(host="127.0.0.1", port=proxy.port),
                headers={"Proxy-Authorization": "Basic abc"},
            ),
        )
        answer = run.ask()

    assert answer.status == 502
    assert "407" in answer.read().decode()
    [request] = asked
    assert request.line.startswith("CONNECT api.example:8080 ")
    assert request.headers["proxy-authorization"] == "Basic abc"
    assert "x-api-key" not in request.headers


def test_an_api_that_cannot_prove_who_it_is_gets_no_key(run_with, certified):
    _certificate, behind_tls = certified
    run = run_with(behind_tls(answer_json), secure=True)

    answer = run.ask()

    assert answer.status == 502
    assert "certificate verify failed" in answer.read().decode()
    assert run.api.requests == []


def test_a_secure_api_is_asked_with_the_operators_own_authority(run_with, certified):
    certificate, behind_tls = certified
    run = run_with(
        behind_tls(answer_well),
        secure=True,
        extra_certificates=str(certificate),
    )

    assert [run.ask().read() for _request in range(2)] == [b"".join(STREAM)] * 2


def test_a_client_that_disconnects_cuts_a_tls_request(run_with, certified):
    certificate, behind_tls = certified
    left = threading.Event()

    def begin(connection, _api):
        connection.sendall(head(200, CHUNKED) + chunk(message_start()))
        connection.settimeout(10)
        assert connection.recv(1) == b""
        left.set()

    run = run_with(behind_tls(begin), secure=True, extra_certificates=str(certificate))
    client = run.connect()
    answer = run.ask(connection=client)
    answer.read1()
    answer.close()
    client.close()

    assert left.wait(5)


def test_certificates_that_cannot_be_read_are_named_before_the_run():
    with pytest.raises(CannotRun, match="NODE_EXTRA_CA_CERTS names /no/such/file"):
        Connections(upstream_at(1, secure=True, extra_certificates="/no/such/file"))
