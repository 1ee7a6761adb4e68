"""A probe of a real server that breaks and recovers: real worker, real terminal, real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.system.conftest import Installation, wait_until


class Shop(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def shop() -> Iterator[int]:
    Shop.status = 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_a_break_starts_a_cycle_with_evidence_and_recovery_needs_no_model(
    migrated: Installation, fake_cli
):
    assert (
        migrated.manage(
            "watch", "add", "shop", migrated.environment["CLAUDEOPS_WORKDIR"]
        ).returncode
        == 0
    )
    assert migrated.manage("watch", "unpause", "shop").returncode == 0
    with shop() as port:
        added = migrated.manage(
            *("probe", "add", "web-http", "--watch", "shop", "--service", "web", "--every", "5s"),
            *("--fail-after", "1", "--recover-after", "1"),
            *("--http", f"http://127.0.0.1:{port}/", "--json"),
        )
        assert json.loads(added.stdout)["state"] == "pending"
        migrated.start("worker")

        def state() -> str:
            return str(migrated.rows("SELECT state FROM sessions_app_probe")[0][0])

        wait_until(lambda: state() == "up", "the first good result")
        cycles_before = len(migrated.rows("SELECT id FROM sessions_app_cycle"))
        Shop.status = 503
        wait_until(
            lambda: migrated.rows("SELECT id FROM sessions_app_cycle WHERE trigger = 'probe'"),
            "a cycle for the failing probe",
        )
        found = migrated.rows("SELECT cause, found_by FROM sessions_app_incident")
        assert ("web", "probe") in found
        [(evidence,)] = migrated.rows(
            "SELECT evidence FROM sessions_app_cycle WHERE trigger = 'probe'"
        )
        assert json.loads(evidence)[0]["name"] == "web-http"
        assert "503" in json.loads(evidence)[0]["output"]
        wait_until(
            lambda: migrated.rows(
                "SELECT prompt FROM sessions WHERE prompt LIKE '%probe web-http of web fails%'"
            ),
            "a prompt with the evidence",
        )

        Shop.status = 200
        wait_until(lambda: state() == "up", "the recovery")
        wait_until(
            lambda: migrated.rows(
                "SELECT id FROM sessions_app_incident WHERE cause = 'web' AND state = 'resolved'"
            ),
            "the incident is resolved",
        )
        assert len(migrated.rows("SELECT id FROM sessions_app_cycle")) <= cycles_before + 1
