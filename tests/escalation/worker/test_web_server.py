"""The web server: sends the date, is idle without requests, and stops on a signal."""

from __future__ import annotations

import signal
import socket
import time
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
