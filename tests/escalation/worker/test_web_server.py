"""The web server: sends the date, is idle without requests, and stops on a signal."""

from __future__ import annotations

import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import pytest
from django.utils import timezone

from escalation.worker.parent import Child, start_web_server, stop_children, wait_for_web


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def server(port: int, monkeypatch, tmp_path) -> Iterator[Child]:
    monkeypatch.setenv("CLAUDEOPS_STATE_DIR", str(tmp_path / "state"))
    child = start_web_server("127.0.0.1", port)
    assert wait_for_web([child], "127.0.0.1", port)
    yield child
    stop_children([child])


def test_responses_have_a_date_header(server, port):
    time.sleep(1.5)  # longer than a tick
    answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz")

    age = timezone.now() - parsedate_to_datetime(answer.headers["date"])
    assert abs(age.total_seconds()) < 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_stops_on_a_signal(server, number):
    server.process.send_signal(number)

    assert server.process.wait(10) in (0, -number, 128 + number)


def test_a_port_that_is_taken_is_an_error(server, port):
    second = start_web_server("127.0.0.1", port)

    assert second.process.wait(60) != 0


def test_alerts_are_taken_on_a_port_of_their_own(port, monkeypatch, tmp_path):
    own = free_port()
    monkeypatch.setenv("CLAUDEOPS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDEOPS_INGRESS", f"127.0.0.1:{own}")
    child = start_web_server("127.0.0.1", port)
    try:
        assert wait_for_web([child], "127.0.0.1", port)
        asked = [status_of(f"http://127.0.0.1:{own}{path}") for path in ("/healthz", "/in/x")]
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(15) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    finally:
        stop_children([child])

    assert asked == [404, 405]


def status_of(address: str) -> int:
    """The status, once the listener of alerts has started, which is after the other."""
    end = time.monotonic() + 20
    while True:
        try:
            return int(urllib.request.urlopen(address).status)
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            assert time.monotonic() < end
            time.sleep(0.2)
