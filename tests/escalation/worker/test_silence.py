"""A worker without heartbeat: one notification for each silence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from escalation.worker.notifier import NOBODY_LEFT, OTHERS_LEFT, tell_of_silent_workers
from sessions_app.models import Incident, Notification, WorkerHeartbeat

pytestmark = pytest.mark.django_db


def beat(host: str, minutes_ago: float) -> WorkerHeartbeat:
    seen = timezone.now() - timedelta(minutes=minutes_ago)
    return WorkerHeartbeat.objects.create(host=host, pid=1, seen_at=seen)


def test_a_worker_with_a_heartbeat_sends_no_notification():
    beat("lab", 1)

    assert tell_of_silent_workers() == 0


def test_no_notification_without_any_worker():
    assert tell_of_silent_workers() == 0


def test_a_silent_worker_sends_one_critical_notification():
    beat("lab", 5)

    assert tell_of_silent_workers() == 1
    assert tell_of_silent_workers() == 0

    told = Notification.objects.get()
    assert told.kind == Notification.Kind.WORKER_SILENT
    assert told.severity == Incident.Severity.CRITICAL
    assert "5 min ago" in told.text
    assert NOBODY_LEFT in told.text


def test_the_notification_names_other_running_workers():
    beat("lab", 5)
    beat("other", 0)

    tell_of_silent_workers()

    assert OTHERS_LEFT in Notification.objects.get().text


def test_the_next_silence_sends_another_notification():
    worker = beat("lab", 60)
    tell_of_silent_workers()
    WorkerHeartbeat.objects.filter(pk=worker.pk).update(
        seen_at=timezone.now() - timedelta(minutes=3),
        silence_told_at=timezone.now() - timedelta(minutes=55),
    )

    assert tell_of_silent_workers() == 1
