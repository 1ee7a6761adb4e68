"""Checks of the web pages by chaos after the web server was killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.devtools.chaos import website
from tests.devtools.chaos.website import Website


class Dashboard(ThreadingHTTPServer):
    """Answers every path as it was told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, str]] = {}

    @property
    def site(self) -> Website:
        return Website(f"http://127.0.0.1:{self.server_address[1]}", "operator", "secret")


class _Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        status, text = self.server.answers[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def dashboard(monkeypatch) -> Iterator[Dashboard]:
    monkeypatch.setattr(website, "READY_SECONDS", 0.3)
    with Dashboard() as serving:
        threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
        yield serving
        serving.shutdown()


def checks(**ok: bool) -> str:
    told = {name: {"ok": well} for name, well in ok.items()}
    return json.dumps({"ready": all(ok.values()), "checks": told})


def test_a_healthy_installation_is_ready(dashboard):
    dashboard.answers["/readyz"] = (200, checks(database=True, worker=True))

    assert dashboard.site.wait_until_ready() == ""


def test_the_small_disk_is_no_problem(dashboard):
    dashboard.answers["/readyz"] = (503, checks(database=True, worker=True, disk=False))

    assert dashboard.site.wait_until_ready() == ""


def test_a_failing_check_is_a_problem(dashboard):
    dashboard.answers["/readyz"] = (503, checks(database=True, worker=False, disk=False))

    assert dashboard.site.wait_until_ready() == "/readyz says that something is wrong: worker"


def test_an_error_page_is_a_problem(dashboard):
    dashboard.answers["/readyz"] = (500, "Server Error")

    assert dashboard.site.wait_until_ready().endswith("Server Error")


def test_a_server_that_does_not_answer_is_a_problem(dashboard):
    dashboard.shutdown()
    dashboard.server_close()

    assert dashboard.site.wait_until_ready().startswith("/readyz does not answer")


@pytest.mark.parametrize("event", ["entry", "done"])
def test_a_live_page_with_data_is_no_problem(dashboard, event):
    dashboard.answers["/sessions/7/live/"] = (200, f"retry: 1000\n\nevent: {event}\nid: 1\n\n")

    assert dashboard.site.live_trouble(7) == ""


def test_a_live_page_without_data_is_a_problem(dashboard):
    dashboard.answers["/sessions/7/live/"] = (200, "retry: 1000\n\n")

    assert dashboard.site.live_trouble(7) == "the live page ended without a word"


def test_a_live_page_that_fails_is_a_problem(dashboard):
    dashboard.answers["/sessions/7/live/"] = (500, "Server Error")

    assert "does not answer" in dashboard.site.live_trouble(7)
