"""The record keeps the name of a watch that is not there any more."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from escalation.next_step import cycles
from sessions_app.models import Cycle, Session
from sessions_app.reading.chain_data import session_as_data
from tests.factories import SessionFactory, WatchFactory


@pytest.mark.django_db
def test_a_cycle_keeps_the_name_of_its_watch(tmp_path):
    watch = WatchFactory(name="shop", workdir=str(tmp_path))
    cycle = cycles.start(watch, trigger=Cycle.Trigger.MANUAL, enqueue=cycles.leave_to_caller)
    watch.delete()

    kept = Cycle.objects.get(pk=cycle.pk)

    assert (kept.watch, kept.subject) == (None, "shop (removed)")
    assert session_as_data(kept.sessions.get())["watch"] == "shop"


@pytest.mark.django_db
def test_a_watch_that_is_there_is_called_as_it_is_now():
    session = SessionFactory(cycle__watch=WatchFactory(name="new"), cycle__watch_name="old")

    assert session.cycle.subject == "new"


@pytest.mark.django_db
def test_sessions_of_a_removed_watch_can_be_searched_for():
    session = SessionFactory(cycle__watch=None, cycle__watch_name="lighthouse")

    assert list(Session.objects.matching("lighthouse")) == [session]


@pytest.mark.django_db(transaction=True)
def test_older_cycles_get_the_name_by_migration():
    executor = MigrationExecutor(connection)
    graph = executor.loader.graph
    (after,) = [key for key in graph.nodes if key[1].endswith("_named_rooms")]
    (before,) = [node.key for node in graph.node_map[after].parents if node.key[0] == after[0]]
    newest = graph.leaf_nodes("sessions_app")
    executor.migrate([before])
    old = executor.loader.project_state([before]).apps
    watch = old.get_model("sessions_app", "Watch").objects.create(name="shop", workdir="/tmp")
    old.get_model("sessions_app", "Cycle").objects.create(watch=watch, trigger="manual")

    executor = MigrationExecutor(connection)
    executor.migrate([after])

    cycle = executor.loader.project_state([after]).apps.get_model("sessions_app", "Cycle")
    assert cycle.objects.get().watch_name == "shop"
    MigrationExecutor(connection).migrate(newest)
