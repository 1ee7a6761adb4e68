"""`/metrics`: what it says, who may read it, and the alert rules that use it."""

from __future__ import annotations

import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
from django.db import OperationalError
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from sessions_app.models import Probe, Session, WorkerHeartbeat
from tests.factories import (
    ApprovalFactory,
    CycleFactory,
    IncidentFactory,
    ProbeFactory,
    SessionFactory,
    WatchFactory,
)

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "docs" / "monitoring" / "claudeops.rules.yml"
HERE = {"headers": {"host": "127.0.0.1:8000"}, "REMOTE_ADDR": "127.0.0.1"}
pytestmark = pytest.mark.django_db


def samples(client) -> dict[tuple[str, ...], float]:
    """The values by name and labels, which stand in the order of their names."""
    answer = client.get("/metrics", **HERE)
    assert answer.status_code == 200
    return {
        (sample.name.removeprefix("claudeops_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def test_metrics_tell_the_state_without_drills(client, settings, django_assert_max_num_queries):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(5)
    shop = WatchFactory(name="shop")
    done = CycleFactory(watch=shop)
    SessionFactory(cycle=done, tier=1, model="haiku", cost_usd=Decimal("1.25"))
    SessionFactory(cycle=CycleFactory(drill="all-healthy", watch=None), cost_usd=Decimal(9))
    running = CycleFactory(watch=WatchFactory(name="nas", enabled=False), running=True)
    SessionFactory(cycle=running, tier=2, status=Session.Status.RUNNING, cost_usd=None)
    IncidentFactory(watch=shop)
    ApprovalFactory()
    ProbeFactory(watch=shop, name="front", state=Probe.State.DOWN)
    ProbeFactory(watch=shop, name="back", state=Probe.State.UP)
    worker = WorkerHeartbeat.objects.create(host="here", pid=1)

    with django_assert_max_num_queries(22):
        found = samples(client)

    assert found["cost_usd_total", "haiku", "1", "shop"] == 1.25
    assert not [key for key, value in found.items() if value == 9]
    assert found["sessions_running", "2"] == 1
    assert (found["watch_enabled", "shop"], found["watch_enabled", "nas"]) == (1, 0)
    assert found["watch_last_success_timestamp_seconds", "shop"] == pytest.approx(
        done.finished_at.timestamp()
    )
    assert (found["probe_up", "front", "shop"], found["probe_up", "back", "shop"]) == (0, 1)
    assert (found["approvals_waiting",], found["incidents_waiting",]) == (1, 1)
    assert found["budget_used_ratio", "Today, all watches"] == pytest.approx(0.25)
    assert found["worker_last_seen_timestamp_seconds", "here"] == pytest.approx(
        worker.seen_at.timestamp()
    )
    assert (found["sandbox_ok",], found["paused",]) == (1, 0)


def test_only_this_host_may_scrape_without_a_token(client, settings):
    assert client.get("/metrics", **HERE).status_code == 200
    for other in (
        {**HERE, "REMOTE_ADDR": "192.0.2.7"},
        {**HERE, "headers": {"host": "ops.example.org"}},
        {**HERE, "headers": {"host": "127.0.0.1", "x-forwarded-for": "127.0.0.1"}},
        {**HERE, "headers": {"host": "127.0.0.1", "via": "1.1 proxy"}},
    ):
        settings.ALLOWED_HOSTS = ["*"]
        assert client.get("/metrics", **other).status_code == 403


def test_a_token_lets_scrape_from_elsewhere_and_is_needed_here(client, settings):
    settings.CLAUDEOPS_METRICS_TOKEN = "a-long-token"
    elsewhere = {"REMOTE_ADDR": "192.0.2.7"}

    for given, expected in (("Bearer a-long-token", 200), ("Bearer another", 403), ("", 403)):
        headers = {"authorization": given} if given else {}
        assert client.get("/metrics", headers=headers, **elsewhere).status_code == expected
    assert client.get("/metrics", **HERE).status_code == 403


def test_a_database_that_does_not_answer_gives_503(client, monkeypatch):
    def locked() -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr("escalation.web.metrics.PauseSwitch.current", locked)

    assert client.get("/metrics", **HERE).status_code == 503


def test_rules_and_document_name_metrics_that_exist(client):
    shop = WatchFactory(name="shop")
    ProbeFactory(watch=shop, state=Probe.State.UP)
    answer = client.get("/metrics", **HERE).content.decode()
    known = set(re.findall(r"^# TYPE (claudeops_\w+) ", answer, re.MULTILINE))

    for path in (RULES, ROOT / "docs" / "metrics.md"):
        named = set(re.findall(r"claudeops_\w+", path.read_text()))
        assert named, path
        assert not named - known, path
    documented = set(re.findall(r"claudeops_\w+", (ROOT / "docs" / "metrics.md").read_text()))
    assert not known - documented


@pytest.mark.prove
def test_promtool_accepts_rules_and_metrics(client):
    unpacked = ROOT / ".venv" / "senders" / "usr" / "bin" / "promtool"
    promtool = shutil.which("promtool") or str(unpacked)
    SessionFactory(cost_usd=Decimal(1), started_at=timezone.now())

    ruled = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True)
    assert ruled.returncode == 0, ruled.stdout + ruled.stderr
    written = client.get("/metrics", **HERE).content
    checked = subprocess.run([promtool, "check", "metrics"], input=written, capture_output=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
