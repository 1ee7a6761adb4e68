"""Stored cycles keep the name of a removed watch."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps

from escalation.supervisor import cycles
from sessions_app.history.chain import session_as_data
from sessions_app.models import Cycle
from sessions_app.models.search import matches
from tests.factories import SessionFactory, WatchFactory


@pytest.mark.django_db
def test_a_cycle_keeps_the_name_of_its_watch(tmp_path):
    watch = WatchFactory(name="shop", workdir=str(tmp_path))
    cycle = cycles.start(watch, trigger=Cycle.Trigger.MANUAL)
    watch.delete()

    kept = Cycle.objects.get(pk=cycle.pk)

    assert (kept.watch, kept.subject) == (None, "shop (removed)")
    assert session_as_data(kept.sessions.get())["watch"] == "shop"


@pytest.mark.django_db
def test_an_existing_watch_has_its_current_name():
    session = SessionFactory(cycle__watch=WatchFactory(name="new"), cycle__watch_name="old")

    assert session.cycle.subject == "new"


@pytest.mark.django_db
def test_sessions_of_a_removed_watch_are_found_by_its_name():
    session = SessionFactory(cycle__watch=None, cycle__watch_name="lighthouse")

    assert list(matches("lighthouse")) == [[session.pk]]


@pytest.mark.django_db
def test_older_cycles_get_the_name_by_migration():
    """Its function alone: a schema that goes back and forth would be every other test's as well."""
    named = SessionFactory(cycle__watch=WatchFactory(name="shop"), cycle__watch_name="").cycle

    import_module("sessions_app.migrations.0004_named_rooms").name_the_cycles(apps, None)

    named.refresh_from_db()
    assert named.watch_name == "shop"
