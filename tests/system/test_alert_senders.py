"""Debian's Prometheus and Alertmanager send alerts to an installation, as its snippets say."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.escalation.rows import a_report
from tests.system.conftest import PROJECT, Installation, free_port, wait_until

pytestmark = [pytest.mark.prove, pytest.mark.django_db]
UNPACKED = PROJECT / ".venv" / "senders" / "usr" / "bin"
RULES = """
groups:
  - name: web
    rules:
      - alert: WebDown
        expr: up{job="web"} == 0
        labels: {service: web, severity: critical}
        annotations: {summary: "web does not answer"}
"""
ROUTE = """
route: {receiver: claudeops, group_wait: 0s, group_interval: 1s, repeat_interval: 2s}
"""
SCRAPE = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - job_name: web
    static_configs: [{targets: ["127.0.0.1:%(web)s"]}]
"""


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        pass


def program(name: str) -> tuple[str, ...]:
    """The installed program; or the unpacked one, which finds its templates in `/usr/share`."""
    if found := shutil.which(name):
        return (found,)
    assert (UNPACKED / name).exists(), "`make senders` unpacks it"
    share = str(UNPACKED.parent / "share")
    sandbox = ("bwrap", "--die-with-parent", "--dev-bind", "/", "/", "--ro-bind", share)
    return (*sandbox, "/usr/share", str(UNPACKED / name))


@pytest.fixture
def senders(migrated: Installation, tmp_path: Path) -> Iterator[dict[str, int]]:
    """Both programs, with the printed snippets as configuration; nothing answers at `web`."""
    ports = {name: free_port() for name in ("web", "prometheus", "alertmanager")}
    watched = migrated.environment["CLAUDEOPS_WORKDIR"]
    for watch in ("shop", "lab"):
        assert migrated.manage("watch", "add", watch, watched, "--enable").returncode == 0
    by_webhook = _added(migrated, "am", "alertmanager", "shop")
    directly = _added(migrated, "prom", "alertmanager-api", "lab")
    (tmp_path / "alertmanager.yml").write_text(by_webhook["snippet"] + ROUTE)
    other = f"    - static_configs: [{{targets: ['127.0.0.1:{ports['alertmanager']}']}}]\n"
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "prometheus.yml").write_text(SCRAPE % ports + directly["snippet"] + other)
    started = [
        _started(
            tmp_path / "alertmanager.log",
            *program("prometheus-alertmanager"),
            f"--config.file={tmp_path}/alertmanager.yml",
            f"--storage.path={tmp_path}/am",
            f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
            "--cluster.listen-address=",
        ),
        _started(
            tmp_path / "prometheus.log",
            *program("prometheus"),
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/prom",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
            "--rules.alert.resend-delay=2s",
        ),
    ]
    yield ports
    for process in started:
        process.terminate()
        process.wait(20)


def _started(log: Path, *words: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(words, stdout=out, stderr=out)


def _added(installation: Installation, name: str, kind: str, watch: str) -> dict[str, str]:
    added = installation.manage("source", "add", name, "--kind", kind, "--watch", watch, "--json")
    assert added.returncode == 0, added.stderr
    found: dict[str, str] = json.loads(added.stdout)
    return found


def incidents(installation: Installation) -> list[tuple[str, str, int]]:
    return installation.rows(
        "SELECT watch_name, cause, healthy_cycles FROM sessions_app_incident ORDER BY watch_name"
    )


def cycles(installation: Installation) -> list[tuple[str, str]]:
    return installation.rows(
        'SELECT watch_name, "trigger" FROM sessions_app_cycle ORDER BY watch_name'
    )


def judged(installation: Installation) -> dict[str, int]:
    return dict(
        installation.rows(
            "SELECT s.name, count(*) FROM sessions_app_delivery d JOIN sessions_app_source s "
            "ON s.id = d.source_id WHERE d.judged_at IS NOT NULL GROUP BY s.name"
        )
    )


def waiting(installation: Installation) -> int:
    [(number,)] = installation.rows(
        "SELECT count(*) FROM sessions_app_delivery WHERE judged_at IS NULL"
    )
    return int(number)


def test_real_senders_open_an_incident_run_once_and_recover(migrated, fake_cli, senders):
    fake_cli.reports(a_report(reason="web does not answer", services=(("web", "down"),)))
    migrated.start("web")
    # No worker yet: what comes now is stored, and judged by the one that starts.
    wait_until(lambda: waiting(migrated) >= 2, "both senders have delivered")
    assert cycles(migrated) == []
    worker = migrated.start("worker")
    wait_until(lambda: len(incidents(migrated)) == 2, "both alerts have an incident")
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    migrated.start("worker")
    before = judged(migrated)
    wait_until(
        lambda: all(judged(migrated)[name] > before[name] + 2 for name in ("am", "prom")),
        "both senders repeat the alert",
    )

    assert cycles(migrated) == [("lab", "alert"), ("shop", "alert")]
    assert [row[:2] for row in incidents(migrated)] == [("lab", "web"), ("shop", "web")]

    server = ThreadingHTTPServer(("127.0.0.1", senders["web"]), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        wait_until(
            lambda: all(healthy for _watch, _cause, healthy in incidents(migrated)),
            "both incidents seem recovered",
        )
        time.sleep(3)  # a run that should not be would begin now
        assert waiting(migrated) <= 1
        assert len(cycles(migrated)) == 2
    finally:
        server.shutdown()
        server.server_close()
    assert migrated.rows("SELECT count(*) FROM sessions_app_refuseddeliveries") == [(0,)]
