"""A worker that is silent: told once for each silence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from escalation.word.silence import tell_of_silent_workers
from sessions_app.models import Happening, Incident, WorkerBeat

pytestmark = pytest.mark.django_db


def beat(host: str, minutes_ago: float) -> WorkerBeat:
    seen = timezone.now() - timedelta(minutes=minutes_ago)
    return WorkerBeat.objects.create(host=host, pid=1, seen_at=seen)


def test_a_worker_that_is_seen_is_no_news():
    beat("lab", 1)

    assert tell_of_silent_workers() == 0


def test_where_there_never_was_one_nobody_is_told():
    assert tell_of_silent_workers() == 0


def test_a_silence_is_told_once_and_is_critical():
    beat("lab", 5)

    assert tell_of_silent_workers() == 1
    assert tell_of_silent_workers() == 0

    told = Happening.objects.get()
    assert told.kind == Happening.Kind.WORKER_SILENT
    assert told.severity == Incident.Severity.CRITICAL
    assert "last seen 5 min ago" in told.text
    assert "No other worker is seen" in told.text


def test_with_others_left_it_says_that_they_go_on():
    beat("lab", 5)
    beat("other", 0)

    tell_of_silent_workers()

    assert "Workers on other hosts go on" in Happening.objects.get().text


def test_the_next_silence_is_told_again():
    worker = beat("lab", 60)
    tell_of_silent_workers()
    WorkerBeat.objects.filter(pk=worker.pk).update(
        seen_at=timezone.now() - timedelta(minutes=3),
        silence_told_at=timezone.now() - timedelta(minutes=55),
    )

    assert tell_of_silent_workers() == 1
