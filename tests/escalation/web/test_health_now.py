"""The page of health: versions, hosts, queue, disk, CLI and settings."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone
from django_q.models import OrmQ, Schedule, Task

from escalation.worker.traces import CHECK_COLLECTOR, CHECK_FORMAT
from sessions_app.models import PauseSwitch, TraceExport, WorkerHeartbeat
from tests.factories import ChannelFactory, CycleFactory, SandboxProofFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]


@pytest.fixture
def url() -> str:
    return reverse("web:health")


def text_of(client, url: str) -> str:
    return client.get(url).content.decode()


def test_versions_are_shown(operator_client, url):
    versions = operator_client.get(url).context["health"].versions

    assert set(versions) == {"Claude Ops", "Python", "Django", "Database", "Kernel"}
    assert versions["Claude Ops"] != "unknown"


def test_each_host_shows_its_last_heartbeat(operator_client, url):
    WorkerHeartbeat.objects.create(host="lab-1", pid=17)
    WorkerHeartbeat.objects.create(
        host="lab-2", pid=18, seen_at=timezone.now() - timedelta(hours=1)
    )

    health = operator_client.get(url).context["health"]

    assert [(beat.host, beat.is_silent) for beat in health.beats] == [
        ("lab-1", False),
        ("lab-2", True),
    ]
    assert health.has_worker


def test_without_a_worker_the_page_says_how_to_start_one(operator_client, url):
    assert "No worker has ever been seen. Start one with" in text_of(operator_client, url)


def test_the_length_and_the_oldest_task_of_the_queue_are_shown(operator_client, url):
    now = timezone.now()
    OrmQ.objects.create(payload="", lock=now - timedelta(minutes=11))
    OrmQ.objects.create(payload="", lock=now - timedelta(minutes=1))
    OrmQ.objects.create(payload="", lock=now + timedelta(minutes=5))

    queue = operator_client.get(url).context["health"].queue

    assert (queue.waiting, queue.taken, queue.is_slow) == (2, 1, True)


def test_a_pause_is_shown_with_the_queue(operator_client, url):
    PauseSwitch.objects.create(pk=1, paused=True, reason="holiday")

    assert "</span> paused</span>" in text_of(operator_client, url)


def test_the_last_housekeeping_is_shown_with_its_result(operator_client, url):
    now = timezone.now()
    facts = {"func": "x", "started": now, "stopped": now}
    Task.objects.create(id="t", name="t", success=False, **facts)
    Schedule.objects.create(name="cleaning", func="x", task="t")

    tasks = operator_client.get(url).context["health"].housekeeping

    assert {task.name: task.went_well for task in tasks}["cleaning"] is False
    assert "not scheduled: a worker sets it up" in text_of(operator_client, url)


def test_a_key_that_cannot_decrypt_stored_data_is_reported(operator_client, url):
    ChannelFactory(encrypted_address=b"not ours")

    assert "cannot be decrypted" in text_of(operator_client, url)


def test_the_use_of_the_disk_is_shown(operator_client, url, settings, tmp_path):
    settings.CLAUDEOPS_STATE_DIR = tmp_path
    (tmp_path / "claude").mkdir()
    (tmp_path / "claude" / "kept").write_bytes(b"x" * 4096)

    disk = operator_client.get(url).context["health"].disk

    assert disk.state_bytes >= 4096
    assert disk.free_bytes > 0
    assert disk.database_bytes


def test_capabilities_of_the_cli_are_shown(operator_client, url):
    health = operator_client.get(url).context["health"]

    assert ("Runs, resumes and forks", True) in health.contract


def test_a_cli_without_a_capability_test_is_shown_as_untested(operator_client, url, monkeypatch):
    monkeypatch.setattr("escalation.web.health.known_capabilities", lambda binary: None)

    assert "It was not tried on this machine yet" in text_of(operator_client, url)


def test_traces_that_are_not_exported_are_shown_with_what_to_do(operator_client, url, settings):
    assert operator_client.get(url).context["health"].traces is None
    settings.OTEL_TRACES_URL = "https://name:password@collector:4318/v1/traces?key=1"
    page = text_of(operator_client, url)
    assert "https://collector:4318/v1/traces" in page
    assert ("password" in page.split("traces-heading")[2].split("</section>")[0]) is False
    old = CycleFactory()
    TraceExport.objects.create(
        cycle=old, state="failed", error="x", due_at=timezone.now() - timedelta(days=2)
    )
    assert operator_client.get(url).context["health"].traces.last is None
    for state, refused, advice in (
        ("waiting", False, CHECK_COLLECTOR),
        ("failed", False, CHECK_COLLECTOR),
        ("failed", True, CHECK_FORMAT),
    ):
        TraceExport.objects.update_or_create(
            cycle=old,
            defaults={
                **{"state": state, "is_refused": refused, "tries": 2},
                **{"due_at": timezone.now(), "error": "the collector answered 503"},
            },
        )
        page = text_of(operator_client, url)
        assert "the collector answered 503" in page, state
        assert advice in page, state


def test_the_last_sandbox_proof_is_shown(operator_client, url):
    SandboxProofFactory(worse=True)

    assert "<strong>1 of 1 failed</strong>" in text_of(operator_client, url)


def test_every_setting_is_shown_with_value_and_source(operator_client, url):
    settings_read = {row.name: row for row in operator_client.get(url).context["health"].settings}

    assert settings_read["CLAUDEOPS_MAX_SESSIONS"].shown == "4"
    assert settings_read["CLAUDEOPS_MAX_SESSIONS"].source == "default"
    assert len(settings_read) > 60


def test_no_secret_is_on_the_page(operator_client, url, settings):
    page = text_of(operator_client, url)

    assert str(settings.SECRET_KEY) not in page
    assert not any(key in page for key in settings.CLAUDEOPS_ENCRYPTION_KEYS)


def test_paths_and_settings_are_hidden_from_roles_that_may_not_see_output(client, url):
    client.force_login(user_with("viewer"))

    assert client.get(url).status_code == 403
