from __future__ import annotations

import os
import socket

import pytest

from escalation.worker.web_server import why_not_bound


@pytest.fixture
def listening():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_port_in_use_is_reported(listening):
    assert "used by another program" in why_not_bound("127.0.0.1", listening)
    assert "CLAUDEOPS_PORT" in why_not_bound("127.0.0.1", listening)


def test_a_free_port_has_no_objection():
    assert why_not_bound("127.0.0.1", 0) == ""


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "999.1.1.1", "a" * 70])
def test_a_host_that_cannot_be_bound_is_not_reported_as_a_port_in_use(host):
    said = why_not_bound(host, 8000)

    assert said.startswith(f"CLAUDEOPS_HOST is {host!r}")
    assert "taken" not in said


def test_a_privileged_port_is_reported(monkeypatch):
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(socket.socket, "bind", refuse)

    assert "which this user may not listen on" in why_not_bound("127.0.0.1", 80)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_listener_of_alerts_is_named_if_it_cannot_listen(listening, settings, host):
    settings.CLAUDEOPS_INGRESS = f"{host}:{listening}" if host != "[::1]" else "[::1]:99999"

    assert "CLAUDEOPS_INGRESS" in why_not_bound("127.0.0.1", 0)
