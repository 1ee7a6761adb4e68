"""The page of health: what this installation is, and whether it is well."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone
from django_q.models import OrmQ, Schedule, Task

from sessions_app.models import PauseSwitch, WorkerHeartbeat
from tests.factories import ChannelFactory, SandboxProofFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]


@pytest.fixture
def url() -> str:
    return reverse("web:health")


def text_of(client, url: str) -> str:
    return client.get(url).content.decode()


def test_versions_are_named(operator_client, url):
    versions = operator_client.get(url).context["health"].versions

    assert set(versions) == {"Claude Ops", "Python", "Django", "Database", "Kernel"}
    assert versions["Claude Ops"] != "unknown"


def test_each_host_shows_when_its_worker_was_seen(operator_client, url):
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


def test_without_a_worker_it_says_how_to_start_one(operator_client, url):
    assert "No worker has ever been seen. Start one with" in text_of(operator_client, url)


def test_the_queue_tells_its_length_and_its_oldest(operator_client, url):
    now = timezone.now()
    OrmQ.objects.create(payload="", lock=now - timedelta(minutes=11))
    OrmQ.objects.create(payload="", lock=now - timedelta(minutes=1))
    OrmQ.objects.create(payload="", lock=now + timedelta(minutes=5))

    queue = operator_client.get(url).context["health"].queue

    assert (queue.waiting, queue.taken, queue.is_slow) == (2, 1, True)


def test_a_paused_queue_says_that_it_is_paused(operator_client, url):
    PauseSwitch.objects.create(pk=1, paused=True, reason="holiday")

    assert "</span> paused</span>" in text_of(operator_client, url)


def test_housekeeping_tells_when_it_last_ran_and_how(operator_client, url):
    now = timezone.now()
    facts = {"func": "x", "started": now, "stopped": now}
    Task.objects.create(id="t", name="t", success=False, **facts)
    Schedule.objects.create(name="cleaning", func="x", task="t")

    tasks = operator_client.get(url).context["health"].housekeeping

    assert {task.name: task.went_well for task in tasks}["cleaning"] is False
    assert "not scheduled: a worker sets it up" in text_of(operator_client, url)


def test_a_key_that_does_not_open_what_is_kept_is_told(operator_client, url):
    ChannelFactory(encrypted_address=b"not ours")

    assert "cannot be decrypted" in text_of(operator_client, url)


def test_the_disk_is_measured(operator_client, url, settings, tmp_path):
    settings.CLAUDEOPS_STATE_DIR = tmp_path
    (tmp_path / "claude").mkdir()
    (tmp_path / "claude" / "kept").write_bytes(b"x" * 4096)

    disk = operator_client.get(url).context["health"].disk

    assert disk.state_bytes >= 4096
    assert disk.free_bytes > 0
    assert disk.database_bytes


def test_what_the_cli_was_found_to_do_is_told_in_words(operator_client, url):
    health = operator_client.get(url).context["health"]

    assert ("Runs, resumes and forks", True) in health.contract


def test_a_cli_that_nobody_tried_is_said_to_be_untried(operator_client, url, monkeypatch):
    monkeypatch.setattr("escalation.web.health.known_capabilities", lambda binary: None)

    assert "It was not tried on this machine yet" in text_of(operator_client, url)


def test_the_last_proof_of_the_sandbox_is_told(operator_client, url):
    SandboxProofFactory(worse=True)

    assert "<strong>1 of 1 failed</strong>" in text_of(operator_client, url)


def test_every_setting_has_its_value_and_its_source(operator_client, url):
    settings_read = {row.name: row for row in operator_client.get(url).context["health"].settings}

    assert settings_read["CLAUDEOPS_MAX_SESSIONS"].shown == "4"
    assert settings_read["CLAUDEOPS_MAX_SESSIONS"].source == "default"
    assert len(settings_read) > 60


def test_no_secret_is_on_the_page(operator_client, url, settings):
    page = text_of(operator_client, url)

    assert str(settings.SECRET_KEY) not in page
    assert not any(key in page for key in settings.CLAUDEOPS_ENCRYPTION_KEYS)


def test_who_may_not_see_output_does_not_see_paths_and_settings(client, url):
    client.force_login(user_with("viewer"))

    assert client.get(url).status_code == 403
