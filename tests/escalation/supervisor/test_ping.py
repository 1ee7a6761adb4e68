"""After a cycle somebody outside is told, and whatever they answer changes nothing here."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from escalation.next_step import conclude as conclude_module
from escalation.next_step import ping as ping_module
from escalation.next_step.ping import ping
from sessions_app.models import Cycle
from tests.escalation.rows import HEALTHY
from tests.escalation.runs import run
from tests.factories import CycleFactory

pytestmark = pytest.mark.django_db


class Monitor(HTTPServer):
    """Keeps every ping, with its path and its words."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pings: list[tuple[str, str]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/ping/abc"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Monitor)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.pings.append((self.path, body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """A test is quiet."""


@pytest.fixture
def monitor(settings) -> Iterator[Monitor]:
    server = Monitor()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    settings.CLAUDEOPS_PING_URL = server.address
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def rude(settings) -> Iterator[None]:
    """A server that answers with something that is no HTTP."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings.CLAUDEOPS_PING_URL = f"http://127.0.0.1:{listener.getsockname()[1]}/"

    def answer() -> None:
        connection, _address = listener.accept()
        connection.recv(65536)
        connection.sendall(b"what do you want?\r\n\r\n")
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join()
    listener.close()


@pytest.mark.parametrize("outcome", Cycle.GOOD_OUTCOMES)
def test_a_good_cycle_is_told(monitor, outcome):
    ping(CycleFactory(outcome=outcome, outcome_reason="All is well: é."))

    assert monitor.pings == [("/ping/abc", "All is well: é.")]


@pytest.mark.parametrize("outcome", [Cycle.Outcome.NEEDS_PERSON, Cycle.Outcome.COULD_NOT_RUN])
def test_a_bad_cycle_is_told_as_a_failure(monitor, outcome):
    ping(CycleFactory(outcome=outcome, outcome_reason="web is down"))

    assert monitor.pings == [("/ping/abc/fail", "web is down")]


def test_a_slash_at_the_end_of_the_address_is_not_doubled(monitor, settings):
    settings.CLAUDEOPS_PING_URL = monitor.address + "/"

    ping(CycleFactory(failed=True))

    assert monitor.pings[0][0] == "/ping/abc/fail"


def test_a_drill_is_never_told(monitor):
    ping(CycleFactory(drilled=True))

    assert monitor.pings == []


def test_without_an_address_nobody_is_called(settings, monkeypatch):
    settings.CLAUDEOPS_PING_URL = ""
    monkeypatch.setattr("urllib.request.urlopen", None)

    ping(CycleFactory())


@pytest.mark.parametrize("status", [404, 500])
def test_a_refusal_is_only_logged(monitor, caplog, status):
    monitor.status = status

    ping(CycleFactory())

    assert str(status) in caplog.text


def test_nobody_at_home_is_only_logged(settings, caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings.CLAUDEOPS_PING_URL = f"http://127.0.0.1:{port}/"

    ping(CycleFactory())

    assert "The ping after cycle" in caplog.text


@pytest.mark.parametrize("address", ["http://", "http://[::1", "http://x y/", "http://a:b/"])
def test_an_impossible_address_is_only_logged(settings, caplog, address):
    settings.CLAUDEOPS_PING_URL = address

    ping(CycleFactory())

    assert "The ping after cycle" in caplog.text


def test_an_answer_that_is_no_http_is_only_logged(rude, caplog):
    ping(CycleFactory())

    assert "The ping after cycle" in caplog.text


def test_a_monitor_that_never_answers_is_not_waited_for(settings, caplog, monkeypatch):
    monkeypatch.setattr(ping_module, "PATIENCE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.CLAUDEOPS_PING_URL = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        ping(CycleFactory())

    assert "timed out" in caplog.text


def test_a_run_that_ends_its_cycle_is_told(
    monitor, fake_cli, session, django_capture_on_commit_callbacks
):
    fake_cli.reports(HEALTHY)

    with django_capture_on_commit_callbacks(execute=True):
        run(session)

    assert [path for path, _words in monitor.pings] == ["/ping/abc"]


def test_nothing_is_told_before_it_is_stored(monitor, django_capture_on_commit_callbacks):
    cycle = CycleFactory(running=True)

    with django_capture_on_commit_callbacks() as callbacks:
        conclude_module.finish_cycle(cycle, Cycle.Outcome.HEALTHY, "well")

    assert monitor.pings == []
    assert len(callbacks) == 1


def test_a_ping_that_fails_changes_nothing_of_the_cycle(
    settings, fake_cli, session, django_capture_on_commit_callbacks, caplog
):
    caplog.set_level(logging.WARNING)
    settings.CLAUDEOPS_PING_URL = "http://127.0.0.1:9/"
    fake_cli.reports(HEALTHY)

    with django_capture_on_commit_callbacks(execute=True):
        ended = run(session)

    assert ended.cycle.outcome == Cycle.Outcome.HEALTHY
    assert "The ping after cycle" in caplog.text
