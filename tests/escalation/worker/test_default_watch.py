from __future__ import annotations

import pytest

from escalation.worker.schedules import ensure_default_watch
from sessions_app.models import Watch
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db


def test_the_first_start_creates_a_watch_from_the_settings(settings):
    settings.CLAUDEOPS_WORKDIR = "/srv/shop"
    settings.CLAUDEOPS_INTERVAL = 1800
    settings.CLAUDEOPS_MAX_TIER = 2
    settings.CLAUDEOPS_DRY_RUN = True

    ensure_default_watch()

    watch = Watch.objects.get(name=Watch.DEFAULT_NAME)
    assert (watch.workdir, watch.interval_minutes) == ("/srv/shop", 30)
    assert (watch.max_tier, watch.dry_run, watch.enabled) == (2, True, False)


def test_without_a_directory_no_watch_is_created(settings):
    """The directory in which somebody types `make up` is our own code."""
    settings.CLAUDEOPS_WORKDIR = ""

    ensure_default_watch()

    assert not Watch.objects.exists()


def test_later_starts_create_no_watch(settings):
    settings.CLAUDEOPS_WORKDIR = "/srv/shop"
    ensure_default_watch()

    ensure_default_watch()

    assert Watch.objects.count() == 1


def test_with_another_watch_no_default_is_created(settings):
    settings.CLAUDEOPS_WORKDIR = "/srv/shop"
    WatchFactory(name="shop")

    ensure_default_watch()

    assert list(Watch.objects.values_list("name", flat=True)) == ["shop"]
