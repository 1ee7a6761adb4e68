"""`/metrics`: what it says, who may read it, and the alert rules that use it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.db import OperationalError
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from escalation.alerts.deliveries import RefusalCounter
from escalation.incidents import recorder, states
from escalation.supervisor import approvals
from escalation.web.metrics import exposition
from sessions_app.models import (
    Approval,
    Cycle,
    Incident,
    Probe,
    RefusedDeliveries,
    Session,
    Source,
    Watch,
    WorkerHeartbeat,
)
from tests.factories import (
    ApprovalFactory,
    CommandEventFactory,
    CycleFactory,
    IncidentFactory,
    ProbeFactory,
    SessionFactory,
    SourceFactory,
    UserFactory,
    WatchFactory,
)

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "docs" / "monitoring"
RULES = MONITORING / "claudeops.rules.yml"
HERE = {"headers": {"host": "127.0.0.1:8000"}, "REMOTE_ADDR": "127.0.0.1"}
pytestmark = pytest.mark.django_db


def samples() -> dict[tuple[str, ...], float]:
    """The values by name and labels, which stand in the order of their names."""
    return {
        (sample.name.removeprefix("claudeops_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(exposition().decode())
        for sample in family.samples
    }


def test_metrics_tell_the_state_without_drills(settings, django_assert_max_num_queries):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(5)
    shop = WatchFactory(name="shop")
    done = CycleFactory(watch=shop)
    tokens = {"input": 11, "output": 12, "cache_read": 13, "cache_creation": 14}
    for model in ("haiku", "opus"):
        used = {f"{kind}_tokens": count for kind, count in tokens.items()}
        SessionFactory(cycle=done, tier=1, model=model, cost_usd=Decimal("0.625"), **used)
    SessionFactory(cycle=CycleFactory(drill="all-healthy", watch=None), cost_usd=Decimal(9))
    running = CycleFactory(watch=WatchFactory(name="nas", enabled=False), running=True)
    SessionFactory(cycle=running, tier=2, status=Session.Status.RUNNING, cost_usd=None)
    IncidentFactory(watch=shop)
    ApprovalFactory()
    ProbeFactory(watch=shop, name="front", state=Probe.State.DOWN)
    ProbeFactory(watch=shop, name="back", state=Probe.State.UP)
    worker = WorkerHeartbeat.objects.create(host="here", pid=1)

    with django_assert_max_num_queries(23):
        found = samples()

    assert found["cost_usd_total", "haiku", "1", "shop"] == 0.625
    of_tier = {kind: found["tokens_total", "1", kind] for kind in tokens}
    assert of_tier == {kind: 2 * count for kind, count in tokens.items()}
    Session.objects.filter(tier=1).delete()
    assert {kind: samples()["tokens_total", "1", kind] for kind in tokens} == of_tier
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


def seconds_ago(seconds: int) -> datetime:
    return timezone.now() - timedelta(seconds=seconds)


def test_counters_add_up_what_ended_and_stay_when_it_is_removed():
    shop = WatchFactory(name="shop")
    for number, outcome in enumerate((Cycle.Outcome.HEALTHY, Cycle.Outcome.FIXED, "healthy"), 1):
        cycle = CycleFactory(
            watch=shop, watch_name="shop", running=True, created_at=seconds_ago(10 * number)
        )
        assert cycle.finish(outcome, "it ended")
        assert not cycle.finish(outcome, "not twice")
    cycle.reopen()
    assert cycle.finish("fixed", "a second end of the same cycle is not counted")
    CycleFactory(drill="all-healthy", watch=None, running=True).finish("healthy", "a drill")
    approval = ApprovalFactory(asked_at=seconds_ago(60))
    assert approvals.close(approval, Approval.State.WITHDRAWN)
    assert not approvals.close(approval, Approval.State.WITHDRAWN)
    incident = IncidentFactory(watch=shop, began_at=seconds_ago(300))
    recorder.resolve(incident, "by hand", by=UserFactory())
    CommandEventFactory(session=SessionFactory(tier=2, cycle=cycle), verdict="deny")
    refusals = RefusalCounter()
    refusals.add(SourceFactory(name="am"), "wrong_secret")
    refusals.flush()

    for was_removed in (False, True):
        found = samples()
        assert found["cycles_total", "healthy", "shop"] == 2
        assert found["cycles_total", "fixed", "shop"] == 1
        assert found["cycle_duration_seconds_count", "shop"] == 3
        assert found["cycle_duration_seconds_sum", "shop"] == pytest.approx(60, abs=5)
        assert found["approval_wait_seconds_count", "tier", "withdrawn"] == 1
        assert found["approval_wait_seconds_sum", "tier", "withdrawn"] == pytest.approx(60, abs=5)
        assert found["incident_repair_seconds_sum", "person"] == pytest.approx(300, abs=5)
        assert found["command_policy_decisions_total", "deny", "2"] == 1
        assert found["alerts_received_total", "wrong_secret", "am"] == 1, was_removed
        Incident.objects.all().delete()
        Source.objects.all().delete()
        RefusedDeliveries.objects.all().delete()
        Watch.objects.all().delete()


def test_fixes_count_by_their_verification():
    for change, expected in (
        (states.verified, "yes"),
        (lambda now, at: states.did_not_hold(now, at, 2), "no"),
        (lambda now, at: states.not_verified(now, None), "unknown"),
    ):
        entries = recorder.IncidentEntries()
        incident = IncidentFactory(state=Incident.State.VERIFYING)
        assert entries.change(incident, change(recorder.snapshot_of(incident), entries.at))
        entries.write()
        assert samples()["fixes_total", expected] == 1


@pytest.fixture
def scraped(monkeypatch):
    """The view with a computation that needs no database, which other threads do not see."""
    monkeypatch.setattr("escalation.web.metrics.exposition", lambda: b"claudeops_paused 0\n")


def test_only_this_host_may_scrape_without_a_token(client, settings, scraped):
    assert client.get("/metrics", **HERE).content == b"claudeops_paused 0\n"
    for other in (
        {**HERE, "REMOTE_ADDR": "192.0.2.7"},
        {**HERE, "headers": {"host": "ops.example.org"}},
        {**HERE, "headers": {"host": "127.0.0.1", "x-forwarded-for": "127.0.0.1"}},
        {**HERE, "headers": {"host": "127.0.0.1", "via": "1.1 proxy"}},
    ):
        settings.ALLOWED_HOSTS = ["*"]
        assert client.get("/metrics", **other).status_code == 403


def test_a_token_lets_scrape_from_elsewhere_and_is_needed_here(client, settings, scraped):
    settings.CLAUDEOPS_METRICS_TOKEN = "a-long-token"
    elsewhere = {"REMOTE_ADDR": "192.0.2.7"}

    for given, expected in (("Bearer a-long-token", 200), ("Bearer another", 403), ("", 403)):
        headers = {"authorization": given} if given else {}
        assert client.get("/metrics", headers=headers, **elsewhere).status_code == expected
    assert client.get("/metrics", **HERE).status_code == 403


def test_a_locked_database_gives_503(client, monkeypatch):
    def locked() -> bytes:
        raise OperationalError("database is locked")

    monkeypatch.setattr("escalation.web.metrics.exposition", locked)

    assert client.get("/metrics", **HERE).status_code == 503


def test_a_hanging_database_gives_503_in_time_and_scrapes_do_not_pile_up(client, monkeypatch):
    answers, asked = threading.Event(), []

    def hanging() -> bytes:
        asked.append(1)
        answers.wait(30)
        return b"claudeops_paused 0\n"

    monkeypatch.setattr("escalation.web.metrics.exposition", hanging)
    monkeypatch.setattr("escalation.web.metrics.ANSWER_SECONDS", 0.2)
    began = time.monotonic()
    assert [client.get("/metrics", **HERE).status_code for _ in range(3)] == [503, 503, 503]
    assert time.monotonic() - began < 10
    assert asked == [1]
    monkeypatch.setattr("escalation.web.metrics.ANSWER_SECONDS", 20.0)
    answers.set()
    assert client.get("/metrics", **HERE).status_code == 200


def known_names() -> set[str]:
    """The names of the samples of all metrics: of families, with the endings of their kind."""
    found = set()
    for family in text_string_to_metric_families(exposition().decode()):
        endings = {"counter": ("_total",), "summary": ("_sum", "_count")}.get(family.type, ("",))
        found |= {family.name + ending for ending in endings}
    return found


def test_rules_dashboard_and_document_name_metrics_that_exist():
    known = known_names()
    document = (MONITORING.parent / "metrics.md").read_text()
    dashboard = json.loads((MONITORING / "claudeops.dashboard.json").read_text())
    expressions = [row["expr"] for panel in dashboard["panels"] for row in panel["targets"]]
    assert len(expressions) >= len(dashboard["panels"]) > 10

    for text in (RULES.read_text(), *expressions):
        named = set(re.findall(r"claudeops_\w+", text))
        assert named, text
        assert not named - known, text
    documented = set(re.findall(r"claudeops_\w+", document))
    short = {re.sub("_(sum|count)$", "", name) for name in known}
    assert documented == short


@pytest.mark.prove
def test_promtool_accepts_rules_and_metrics():
    unpacked = ROOT / ".venv" / "senders" / "usr" / "bin" / "promtool"
    promtool = shutil.which("promtool") or str(unpacked)
    SessionFactory(cost_usd=Decimal(1), started_at=timezone.now())

    ruled = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True)
    assert ruled.returncode == 0, ruled.stdout + ruled.stderr
    tests = MONITORING / "claudeops.rules.test.yml"
    tested = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    written = exposition()
    checked = subprocess.run([promtool, "check", "metrics"], input=written, capture_output=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
