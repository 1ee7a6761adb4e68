"""Debian's Prometheus and Alertmanager send alerts to an installation, and scrape its metrics."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from escalation.drills.scenario import Scenario, parse_reply
from escalation.drills.scripted_api import ScriptedApi
from escalation.report import ReportedProbe
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
PROPOSED: ReportedProbe = {
    "service": "web",
    "kind": "command",
    "target": "curl -f http://127.0.0.1:1/",
}
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
    # The lab is paused: its incident is left to a person.
    assert migrated.manage("watch", "add", "shop", watched, "--enable").returncode == 0
    assert migrated.manage("watch", "add", "lab", watched).returncode == 0
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


def _proposed(installation: Installation) -> list[str]:
    """Targets of the probes that are offered to a person, with those of the report alone."""
    listed = installation.manage("probe", "proposals", "--watch", "shop", "--json")
    return [one["target"] for one in json.loads(listed.stdout) if one["session"]]


def incidents(installation: Installation) -> list[tuple[str, str, int]]:
    return installation.rows(
        "SELECT watch_name, cause, healthy_cycles FROM sessions_app_incident ORDER BY watch_name"
    )


def states(installation: Installation) -> list[tuple[str, str]]:
    return installation.rows(
        "SELECT watch_name, state FROM sessions_app_incident ORDER BY watch_name"
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


def chain_of_shop() -> Scenario:
    """Tier 1 finds web down, Tier 2 makes the file by which the test starts the server of web."""
    down = a_report(needed=True, reason="web does not answer", services=(("web", "down"),))
    fixed = a_report(services=(("web", "healthy"),), actions=(("created web.up", "succeeded"),))
    fixed["actions_taken"][0]["service"] = "web"
    fixed["probes"] = [{**PROPOSED, "why": "No probe had noticed it."}]
    replies: tuple[dict[str, Any], ...] = (
        {"say": "I pass on.", "report": down},
        {"say": "I start web.", "run": "touch web.up"},
        {"say": "It answers.", "report": fixed},
    )
    return Scenario(name="senders", title="x", tiers={1: tuple(map(parse_reply, replies))})


@contextmanager
def served(port: int) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", port), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def test_real_senders_go_the_whole_chain_once(migrated, senders, tmp_path):
    watched = Path(migrated.environment["CLAUDEOPS_WORKDIR"])
    probe = ("probe", "add", "web-http", "--watch", "shop", "--service", "web", "--every", "5s")
    web = f"http://127.0.0.1:{senders['web']}/"
    # It never goes down by itself: the alert is to find the problem, the probe to prove its end.
    added = migrated.manage(*probe, "--fail-after", "100", "--recover-after", "1", "--http", web)
    assert added.returncode == 0, added.stderr
    with ScriptedApi(chain_of_shop()).serving() as api:
        migrated.environment["ANTHROPIC_BASE_URL"] = api.base_url("senders", 1)
        migrated.environment["ANTHROPIC_API_KEY"] = "test-key"
        migrated.start("web")
        # No worker yet: what comes now is stored, and judged by the one that starts.
        wait_until(lambda: waiting(migrated) >= 2, "both senders have delivered")
        assert cycles(migrated) == []
        worker = migrated.start("worker")
        wait_until(lambda: len(incidents(migrated)) == 2, "both alerts have an incident")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        migrated.start("worker")
        wait_until((watched / "web.up").exists, "Tier 2 has started web")
        before = judged(migrated)
        with served(senders["web"]):
            wait_until(
                lambda: "resolved" in dict(states(migrated)).values(),
                "the incident is verified by the probe and resolved",
            )
            wait_until(
                lambda: all(judged(migrated)[name] > before[name] for name in ("am", "prom")),
                "both senders have delivered the end",
            )
    assert waiting(migrated) <= 1
    assert cycles(migrated) == [("shop", "alert")]
    assert states(migrated) == [("lab", "open"), ("shop", "resolved")]
    assert migrated.rows(
        "SELECT found_by, resolved_as FROM sessions_app_incident WHERE watch_name = 'shop'"
    ) == [("alert", "agent")]
    tiers = migrated.rows("SELECT tier, status FROM sessions ORDER BY id")
    assert [row for row in tiers if row[1] != "interrupted"] == [(1, "escalated"), (2, "completed")]
    assert _proposed(migrated) == [PROPOSED["target"]]
    assert len(migrated.rows("SELECT id FROM sessions_app_probe")) == 1
    assert migrated.rows("SELECT count(*) FROM sessions_app_refuseddeliveries") == [(0,)]


def firing(port: int) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=5) as answer:
        alerts = json.load(answer)["data"]["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def test_prometheus_scrapes_the_metrics_and_alarms_when_the_worker_dies(migrated, tmp_path):
    """The rules of docs/monitoring, which here wait for seconds instead of minutes."""
    rules = (PROJECT / "docs" / "monitoring" / "claudeops.rules.yml").read_text()
    assert "> 120 or" in rules
    assert "for: 1m" in rules
    hasty = rules.replace("> 120 or", "> 20 or").replace("for: 1m", "for: 2s")
    (tmp_path / "rules.yml").write_text(hasty)
    web = migrated.environment["CLAUDEOPS_PORT"]
    scrape = SCRAPE.replace("job_name: web", "job_name: claudeops") % {"web": web}
    (tmp_path / "prometheus.yml").write_text(scrape)
    port = free_port()
    migrated.start("web")
    worker = migrated.start("worker")
    wait_until(lambda: migrated.rows("SELECT 1 FROM sessions_app_workerheartbeat"), "a heartbeat")
    prometheus = _started(
        tmp_path / "prometheus.log",
        *program("prometheus"),
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/prom",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    try:
        asked = f"http://127.0.0.1:{port}/api/v1/query?query=claudeops_build_info"

        def scraped() -> bool:
            with suppress(OSError), urllib.request.urlopen(asked, timeout=5) as answer:
                return bool(json.load(answer)["data"]["result"])
            return False

        wait_until(scraped, "Prometheus has scraped the metrics")
        # Before the first scrape there is no heartbeat either.
        wait_until(lambda: "ClaudeOpsNoWorker" not in firing(port), "the worker is seen")
        worker.send_signal(signal.SIGKILL)
        wait_until(lambda: "ClaudeOpsNoWorker" in firing(port), "the alert fires")
        assert "ClaudeOpsDown" not in firing(port)
    finally:
        prometheus.terminate()
        prometheus.wait(20)
