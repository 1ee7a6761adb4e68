"""The queue worker: it recovers first, shows that it lives, and ends its runs when told to stop."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django_q.models import Schedule

from escalation.agent.process_tree import boot_id
from escalation.queue.broker import WakingBroker
from escalation.worker import worker
from sessions_app.models import Session, WorkerHeartbeat
from tests.escalation.recovery_cases import living_runner, orphan
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db(transaction=True)


class StandInCluster:
    """Plays django-q2's cluster: notes what happened when, and asks for the stop itself."""

    happened: list[str] = []
    guard_lives = True
    before_stop: Callable[[], None]
    while_stopping: Callable[[], None]

    @property
    def sentinel(self) -> StandInCluster:
        return self

    def is_alive(self) -> bool:
        return self.guard_lives

    def start(self) -> None:
        self.happened.append("start")
        threading.Thread(target=self._ask_to_stop).start()

    def stop(self) -> None:
        self.happened.append("stop")
        type(self).while_stopping()

    def _ask_to_stop(self) -> None:
        try:
            type(self).before_stop()
        finally:
            connection.close()
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(autouse=True)
def cluster(monkeypatch) -> Iterator[type[StandInCluster]]:
    """The worker runs around a cluster that does nothing, until it gets SIGTERM."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # A signal that comes before the worker listens must not end the tests.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    monkeypatch.setattr(StandInCluster, "happened", [])
    monkeypatch.setattr(StandInCluster, "before_stop", _a_moment, raising=False)
    monkeypatch.setattr(StandInCluster, "while_stopping", _nothing, raising=False)
    monkeypatch.setattr(worker, "new_cluster", StandInCluster)
    monkeypatch.setattr(worker, "SENTINEL_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(WakingBroker, "is_closing", staticmethod(lambda: False))
    yield StandInCluster
    gc.unfreeze()
    for number, handler in before.items():
        signal.signal(number, handler)


def _a_moment() -> None:
    time.sleep(0.3)


def _nothing() -> None:
    """The cluster ends at once."""


def wait_until(condition: Callable[[], Any], seconds: float = 5.0) -> bool:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def beat_is_stored() -> bool:
    return WorkerHeartbeat.objects.exists()


def is_running(session: Session) -> bool:
    return Session.objects.get(pk=session.pk).status == Session.Status.RUNNING


def running_here(**facts: Any) -> Session:
    session: Session = SessionFactory(running=True, host=socket.gethostname(), **facts)
    return session


def test_it_recovers_before_it_begins(cluster, monkeypatch):
    def recover(**options: Any) -> list[Any]:
        cluster.happened.append(f"recover at_start={options['at_start']}")
        return []

    monkeypatch.setattr(worker, "recover", recover)

    worker.run_worker()

    assert cluster.happened == ["recover at_start=True", "start", "stop"]


def test_a_recovery_that_fails_does_not_keep_the_worker_from_starting(cluster, monkeypatch):
    def recover(**options: Any) -> list[Any]:
        raise OperationalError("database is locked")

    monkeypatch.setattr(worker, "recover", recover)

    worker.run_worker()

    assert "start" in cluster.happened


def test_started_as_root_it_says_so_in_one_line(cluster, monkeypatch, caplog):
    monkeypatch.setattr(worker, "runs_as_root", lambda: True)

    call_command("worker")

    said = [record.getMessage() for record in caplog.records if "as root" in record.getMessage()]
    assert len(said) == 1
    assert "User=claudeops" in said[0]


def test_it_brings_its_own_housekeeping(cluster):
    worker.run_worker()

    names = set(Schedule.objects.values_list("name", flat=True))
    assert names == {"cleaning", "manifests", "recovery", "verification", "sandbox-proof"}


def test_the_housekeeping_is_there_before_the_cluster_begins(cluster, monkeypatch):
    monkeypatch.setattr(worker, "ensure_housekeeping", lambda: cluster.happened.append("schedules"))

    worker.run_worker()

    assert cluster.happened == ["schedules", "start", "stop"]


def test_schedules_that_cannot_be_stored_do_not_keep_the_worker_from_starting(cluster, monkeypatch):
    def refuse() -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(worker, "ensure_housekeeping", refuse)

    worker.run_worker()

    assert "start" in cluster.happened


def test_what_every_process_needs_is_loaded_before_they_are_forked(cluster, monkeypatch):
    monkeypatch.setattr(worker, "import_module", cluster.happened.append)

    worker.run_worker()

    assert cluster.happened == [*worker.PRELOADED, "start", "stop"]


def test_it_shows_that_it_lives(cluster):
    cluster.before_stop = lambda: wait_until(beat_is_stored)

    worker.run_worker()

    beat = WorkerHeartbeat.objects.get()
    assert (beat.host, beat.pid) == (socket.gethostname(), os.getpid())


def test_it_goes_on_to_show_it(cluster, monkeypatch):
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.05)
    seen = []

    def look() -> None:
        wait_until(beat_is_stored)
        first = WorkerHeartbeat.objects.get().seen_at
        seen.append(wait_until(lambda: WorkerHeartbeat.objects.get().seen_at > first))

    cluster.before_stop = look

    worker.run_worker()

    assert seen == [True]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_beat_that_the_database_refuses_is_not_the_last(cluster, monkeypatch):
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.05)
    store = WorkerHeartbeat.objects.update_or_create
    refusals = [OperationalError("database is locked")]

    def refuse_once(*args: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return store(*args, **options)

    monkeypatch.setattr(WorkerHeartbeat.objects, "update_or_create", refuse_once)
    cluster.before_stop = lambda: wait_until(beat_is_stored, 2.0)

    worker.run_worker()

    assert beat_is_stored()


def test_a_run_whose_runner_died_is_taken_over_without_waiting_for_the_schedule(
    cluster, monkeypatch, tmp_path
):
    """The schedule goes by the clock of the host that looked last, and that may be the dead one."""
    monkeypatch.setattr(worker, "HEARTBEAT_SECONDS", 0.05)
    ended = []

    def a_runner_dies() -> None:
        alone = orphan(tmp_path)
        ended.append(wait_until(lambda: not is_running(alone), 10.0))

    cluster.before_stop = a_runner_dies

    worker.run_worker()

    assert ended == [True]


def test_a_second_worker_of_this_host_takes_the_beat_over(cluster):
    WorkerHeartbeat.objects.create(host=socket.gethostname(), pid=1)
    cluster.before_stop = lambda: wait_until(
        lambda: WorkerHeartbeat.objects.get().pid == os.getpid()
    )

    worker.run_worker()

    assert WorkerHeartbeat.objects.get().pid == os.getpid()


def test_its_runs_are_asked_to_stop_while_the_cluster_waits_for_them(cluster):
    session = running_here(boot_id=boot_id(), **living_runner())
    asked = []

    def look() -> None:
        wait_until(lambda: Session.objects.get(pk=session.pk).stop_requested)
        asked.append(Session.objects.get(pk=session.pk).stop_requested)

    cluster.while_stopping = look

    worker.run_worker()

    assert asked == ["the worker was told to stop"]


def test_runs_of_another_host_are_left_alone(cluster):
    session = SessionFactory(running=True, host="elsewhere")

    worker.run_worker()

    session.refresh_from_db()
    assert session.stop_requested == ""


def test_a_run_that_begins_while_the_worker_stops_is_asked_to_stop_too(cluster):
    asked = []

    def a_tier_begins() -> None:
        session = running_here()
        asked.append(
            wait_until(lambda: Session.objects.get(pk=session.pk).stop_requested != "", 3.0)
        )

    cluster.while_stopping = a_tier_begins

    worker.run_worker()

    assert asked == [True]


def test_a_stop_is_asked_of_the_runs_of_this_host_only():
    here = SessionFactory(running=True, host=socket.gethostname())
    elsewhere = SessionFactory(running=True, host="another-host")
    ended = SessionFactory(host=socket.gethostname())
    asked = SessionFactory(
        running=True, host=socket.gethostname(), stop_cause="person", stop_requested="a person"
    )

    worker.request_stop()

    reasons = dict(Session.objects.values_list("pk", "stop_requested"))
    assert reasons == {
        here.pk: "the worker was told to stop",
        elsewhere.pk: "",
        ended.pk: "",
        asked.pk: "a person",
    }


def test_a_database_that_is_away_does_not_keep_the_worker_from_stopping(cluster, monkeypatch):
    def refuse() -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(worker, "request_stop", refuse)

    with contextlib.suppress(OperationalError):  # no process of the cluster is left, that counts
        worker.run_worker()

    assert cluster.happened == ["start", "stop"]


def test_the_command_runs_it(monkeypatch):
    ran = []
    monkeypatch.setattr("escalation.management.commands.worker.run_worker", lambda: ran.append(1))

    call_command("worker")

    assert ran == [1]


def test_a_worker_whose_guard_has_died_ends_to_be_started_again(cluster, monkeypatch):
    monkeypatch.setattr(cluster, "guard_lives", False)
    monkeypatch.setattr(cluster, "start", lambda self: None)

    with pytest.raises(SystemExit, match="sentinel has died"):
        worker.run_worker()
