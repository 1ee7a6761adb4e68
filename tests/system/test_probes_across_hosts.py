"""Probes of a watch that two hosts may run: one runs them, and the other goes on when it dies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sessions_app.models import ProbeLease
from tests.devtools.postgres import own_postgres
from tests.system.three_hosts import AHEAD, RIGHT, ThreeHosts, three_hosts_in

pytestmark = [pytest.mark.prove, pytest.mark.timeout(600)]
WEB = ("--watch", "shop", "--service", "web", "--every", "5s")
CHANGES = "SELECT kind FROM sessions_app_probechange ORDER BY id"


class Shop(BaseHTTPRequestHandler):
    status = 200
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


@pytest.fixture
def shop() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def hosts(tmp_path) -> Iterator[ThreeHosts]:
    """The clock of one of the two is a minute ahead."""
    with own_postgres() as server:
        hosts = three_hosts_in(tmp_path, server)
        try:
            yield hosts
        finally:
            hosts.stop()


def test_another_host_takes_the_probes_over_when_one_dies(hosts, shop, tmp_path):
    claudeops = ("-m", "escalation.management")
    (tmp_path / "shop").mkdir()
    hosts.manage(*claudeops, "watch", "add", "shop", str(tmp_path / "shop"))  # paused: no cycle
    limits = ("--fail-after", "1", "--recover-after", "1", "--http", f"http://127.0.0.1:{shop}/")
    hosts.manage(*claudeops, "probe", "add", "web-http", *WEB, *limits)

    def holder() -> str:
        rows = hosts.rows("SELECT host FROM sessions_app_probelease")
        return str(rows[0]["host"]) if rows else ""

    def changes() -> list[str]:
        return [str(row["kind"]) for row in hosts.rows(CHANGES)]

    for name in (AHEAD, RIGHT):
        hosts.start(name)
    hosts.wait_until(lambda: changes() == ["up"], "the probe is up")
    first = holder()
    other = {AHEAD: RIGHT, RIGHT: AHEAD}[first]
    asked, began = Shop.asked, time.monotonic()
    time.sleep(15)
    assert Shop.asked - asked <= (time.monotonic() - began) / 5 + 1, "both hosts ran it"

    hosts.kill(first)
    killed = time.monotonic()
    Shop.status = 503
    hosts.wait_until(lambda: changes() == ["up", "down"], "the other host sees the break")
    noticed = time.monotonic() - killed
    assert (holder(), len(hosts.rows("SELECT id FROM sessions_app_incident"))) == (other, 1)
    # Its lease, the time between two looks at leases, an interval; and the machine may be busy.
    assert noticed < ProbeLease.LENGTH.total_seconds() + 30, noticed

    hosts.start(first)
    Shop.status = 200
    hosts.wait_until(lambda: changes() == ["up", "down", "up"], "the recovery, once")
    asked, began = Shop.asked, time.monotonic()
    time.sleep(15)
    assert Shop.asked - asked <= (time.monotonic() - began) / 5 + 1
    assert (holder(), changes()) == (other, ["up", "down", "up"])
    [incident] = hosts.rows("SELECT state, found_by, resolved_as FROM sessions_app_incident")
    assert (incident["state"], incident["found_by"]) == ("resolved", "probe"), json.dumps(
        dict(incident), default=str
    )
