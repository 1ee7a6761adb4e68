from __future__ import annotations

import os
import socket

import pytest
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from escalation.worker.installation import Upgrade, living_workers, upgrade_ahead
from sessions_app.models import Session, WorkerHeartbeat
from tests.factories import SessionFactory
from tests.tables import each_row

NOTHING = {"waiting": (), "unknown": (), "is_new": False, "running": (), "workers": ()}
WAITING = {"waiting": ("sessions_app.0099_next",)}


@pytest.mark.django_db
def test_a_database_of_this_version_has_no_waiting_migration():
    ahead = upgrade_ahead()

    assert (ahead.waiting, ahead.unknown, ahead.is_new) == ((), (), False)
    assert ahead.objection == ""


@pytest.mark.django_db
def test_a_database_of_a_newer_version_is_recognised():
    MigrationRecorder.Migration.objects.create(app="sessions_app", name="0999_future")

    assert "newer Claude Ops (it has sessions_app.0999_future)" in upgrade_ahead().objection


@pytest.mark.django_db
def test_migrations_that_are_not_applied_are_waiting():
    newest = MigrationRecorder.Migration.objects.filter(app="sessions_app").latest("name")
    newest.delete()

    assert f"sessions_app.{newest.name}" in upgrade_ahead().waiting


@pytest.mark.django_db
def test_running_sessions_are_named():
    living = {"host": "another", "heartbeat_at": timezone.now()}
    session = SessionFactory(status=Session.Status.RUNNING, **living)

    assert upgrade_ahead().running == (session.pk,)


@pytest.mark.django_db
def test_sessions_of_dead_processes_do_not_prevent_the_upgrade():
    """Only a worker can recover it, and that one needs the new tables."""
    SessionFactory(status=Session.Status.RUNNING, host=socket.gethostname(), runner_pid=None)

    assert upgrade_ahead().running == ()


@each_row(
    ("facts", "words"),
    [
        ({**WAITING}, ""),
        ({"running": (3,)}, ""),
        ({**WAITING, "running": (3, 4)}, "Sessions are running (#3, #4)"),
        ({**WAITING, "workers": ("process 7 on x",)}, "A worker of another version is running"),
        ({**WAITING, "unknown": ("a.0002",), "running": (3,)}, "newer Claude Ops"),
        ({"encoding": "SQL_ASCII"}, "createdb --encoding UTF8"),
    ],
)
def test_objections_to_an_upgrade(facts, words):
    objection = Upgrade(**{**NOTHING, **facts}).objection

    assert objection.startswith(words) or words in objection
    assert bool(objection) == bool(words)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("host", "pid", "is_living"),
    [
        (socket.gethostname(), os.getpid(), True),
        (socket.gethostname(), 2**22 - 1, False),
        ("another", 2**22 - 1, True),
    ],
    ids=["this process", "none of this host", "one of another host"],
)
def test_a_worker_of_this_host_is_live_while_its_process_runs(host, pid, is_living):
    WorkerHeartbeat.objects.create(host=host, pid=pid, seen_at=timezone.now())

    assert bool(living_workers()) == is_living
