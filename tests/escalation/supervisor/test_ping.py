"""The ping after a cycle; its answer changes nothing."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from escalation.supervisor import conclude as conclude_module
from escalation.supervisor import conclude as ping_module
from escalation.supervisor.conclude import due_pings, ping, send_ping
from escalation.supervisor.decision import Ending, Stop
from escalation.worker.notifier import Notifier
from sessions_app.models import Cycle, Session
from tests.escalation.rows import HEALTHY
from tests.escalation.runs import run
from tests.factories import ApprovalFactory, CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db


class Monitor(HTTPServer):
    """Keeps every ping, with its path and its words."""

    status = 200
    seconds = 0.0
    """Before it answers."""

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
        time.sleep(self.server.seconds)
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
def test_a_good_cycle_pings_the_address(monitor, outcome):
    ping(CycleFactory(outcome=outcome, outcome_reason="All is well: é."))

    assert monitor.pings == [("/ping/abc", "All is well: é.")]


@pytest.mark.parametrize("outcome", [Cycle.Outcome.NEEDS_PERSON, Cycle.Outcome.COULD_NOT_RUN])
def test_a_bad_cycle_pings_the_failure_address(monitor, outcome):
    ping(CycleFactory(outcome=outcome, outcome_reason="web is down"))

    assert monitor.pings == [("/ping/abc/fail", "web is down")]


def test_a_slash_at_the_end_of_the_address_is_not_doubled(monitor, settings):
    settings.CLAUDEOPS_PING_URL = monitor.address + "/"

    ping(CycleFactory(failed=True))

    assert monitor.pings[0][0] == "/ping/abc/fail"


def test_a_drill_sends_no_ping(monitor):
    ping(CycleFactory(drilled=True))

    assert monitor.pings == []


def test_without_an_address_no_ping_is_sent(settings, monkeypatch):
    settings.CLAUDEOPS_PING_URL = ""
    monkeypatch.setattr("urllib.request.urlopen", None)

    ping(CycleFactory())


@pytest.mark.parametrize("status", [404, 500])
def test_a_refusal_is_only_logged(monitor, caplog, status):
    monitor.status = status

    ping(CycleFactory())

    assert str(status) in caplog.text


def test_a_refused_connection_is_only_logged(settings, caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings.CLAUDEOPS_PING_URL = f"http://127.0.0.1:{port}/"

    ping(CycleFactory())

    assert "The ping after cycle" in caplog.text


@pytest.mark.parametrize("address", ["http://", "http://[::1", "http://x y/", "http://a:b/"])
def test_an_invalid_address_is_only_logged(settings, caplog, address):
    settings.CLAUDEOPS_PING_URL = address

    ping(CycleFactory())

    assert "The ping after cycle" in caplog.text


def test_an_answer_that_is_not_http_is_only_logged(rude, caplog):
    ping(CycleFactory())

    assert "The ping after cycle" in caplog.text


def test_a_ping_without_an_answer_times_out(settings, caplog, monkeypatch):
    monkeypatch.setattr(ping_module, "TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.CLAUDEOPS_PING_URL = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        ping(CycleFactory())

    assert "timed out" in caplog.text


def test_the_end_of_a_cycle_sends_a_ping(
    monitor, fake_cli, session, django_capture_on_commit_callbacks
):
    fake_cli.reports(HEALTHY)

    with django_capture_on_commit_callbacks(execute=True):
        run(session)

    assert [path for path, _words in monitor.pings] == ["/ping/abc"]


def test_no_ping_is_sent_before_the_commit(monitor, django_capture_on_commit_callbacks):
    session = SessionFactory(running=True)
    ending = Ending(tier=session.tier, status=Session.Status.COMPLETED, report=HEALTHY)

    with django_capture_on_commit_callbacks() as callbacks:
        decision = Stop(Cycle.Outcome.HEALTHY, "well")
        conclude_module.conclude(session, ending, decision)

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


def waiting_session() -> Session:
    cycle = CycleFactory(running=True, state="queued")
    return SessionFactory(running=True, cycle=cycle, status="queued", started_at=None)


def stop_in_browser(client: Client) -> Cycle:
    cycle = waiting_session().cycle
    client.post(reverse("web:stop_cycle", args=[cycle.pk]))
    return cycle


def reject_in_browser(client: Client) -> Cycle:
    approval = ApprovalFactory()
    client.post(reverse("web:reject", args=[approval.pk]), {"note": "No."})
    return approval.session.cycle


def expire_in_admin(client: Client) -> Cycle:
    session = waiting_session()
    form = {"action": "expire", "_selected_action": [session.pk]}
    client.post(reverse("admin:sessions_app_session_changelist"), form)
    return session.cycle


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("act", [stop_in_browser, reject_in_browser, expire_in_admin])
def test_a_request_that_ends_a_cycle_does_not_wait_for_the_monitor(monitor, operator_client, act):
    monitor.seconds = 5
    began = time.monotonic()

    cycle = act(operator_client)

    assert time.monotonic() - began < 4
    assert Cycle.objects.get(pk=cycle.pk).outcome
    assert monitor.pings == []


@pytest.mark.django_db(transaction=True)
def test_the_worker_sends_the_ping_of_a_cycle_that_a_request_ended(monitor, operator_client):
    cycle = stop_in_browser(operator_client)
    for _ in range(2):
        at_work = Notifier()
        at_work.look()
        at_work.finish(20)

    reason = Cycle.objects.get(pk=cycle.pk).outcome_reason
    assert monitor.pings == [("/ping/abc/fail", reason)]


@pytest.mark.django_db(transaction=True)
def test_a_ping_is_sent_again_after_its_sender_has_died(monitor, operator_client, monkeypatch):
    cycle = stop_in_browser(operator_client)
    with monkeypatch.context() as patched:
        patched.setattr("urllib.request.urlopen", lambda *_given, **_options: sys.exit(1))
        with pytest.raises(SystemExit):
            send_ping(cycle.pk)
    assert send_ping(cycle.pk) is False
    Cycle.objects.update(ping_due_at=timezone.now() - timedelta(seconds=1))

    assert due_pings() == [cycle.pk]
    assert send_ping(cycle.pk) is True
    assert len(monitor.pings) == 1
    assert due_pings() == []
