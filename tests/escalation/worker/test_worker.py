"""The worker: recovers first, writes heartbeats, and ends its sessions on a signal."""

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

from escalation.agent.process import boot_id
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


def test_the_worker_recovers_sessions_before_it_starts(cluster, monkeypatch):
    def recover(**options: Any) -> list[Any]:
        cluster.happened.append(f"recover at_start={options['at_start']}")
        return []

    monkeypatch.setattr(worker, "recover", recover)

    worker.run_worker()

    assert cluster.happened == ["recover at_start=True", "start", "stop"]


def test_a_failed_recovery_does_not_prevent_the_start(cluster, monkeypatch):
    def recover(**options: Any) -> list[Any]:
        raise OperationalError("database is locked")

    monkeypatch.setattr(worker, "recover", recover)

    worker.run_worker()

    assert "start" in cluster.happened


def test_a_start_as_root_is_reported_in_one_line(cluster, monkeypatch, caplog):
    monkeypatch.setattr(worker, "runs_as_root", lambda: True)

    call_command("worker")

    said = [record.getMessage() for record in caplog.records if "as root" in record.getMessage()]
    assert len(said) == 1
    assert "User=claudeops" in said[0]


def test_the_worker_creates_the_housekeeping_schedules(cluster):
    worker.run_worker()

    names = set(Schedule.objects.values_list("name", flat=True))
    assert names == {"cleaning", "manifests", "recovery", "verification", "sandbox-proof"}


def test_the_schedules_exist_before_the_cluster_starts(cluster, monkeypatch):
    monkeypatch.setattr(worker, "ensure_housekeeping", lambda: cluster.happened.append("schedules"))

    worker.run_worker()

    assert cluster.happened == ["schedules", "start", "stop"]


def test_schedules_that_cannot_be_stored_do_not_prevent_the_start(cluster, monkeypatch):
    def refuse() -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(worker, "ensure_housekeeping", refuse)

    worker.run_worker()

    assert "start" in cluster.happened


def test_modules_are_loaded_before_the_processes_are_forked(cluster, monkeypatch):
    monkeypatch.setattr(worker, "import_module", cluster.happened.append)

    worker.run_worker()

    assert cluster.happened == [*worker.PRELOADED, "start", "stop"]


def test_the_worker_writes_a_heartbeat(cluster):
    cluster.before_stop = lambda: wait_until(beat_is_stored)

    worker.run_worker()

    beat = WorkerHeartbeat.objects.get()
    assert (beat.host, beat.pid) == (socket.gethostname(), os.getpid())


def test_the_worker_repeats_its_heartbeat(cluster, monkeypatch):
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
def test_heartbeats_continue_after_a_failed_one(cluster, monkeypatch):
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


def test_a_session_of_a_dead_runner_is_recovered_without_waiting_for_the_schedule(
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


def test_a_second_worker_of_this_host_takes_over_the_heartbeat(cluster):
    WorkerHeartbeat.objects.create(host=socket.gethostname(), pid=1)
    cluster.before_stop = lambda: wait_until(
        lambda: WorkerHeartbeat.objects.get().pid == os.getpid()
    )

    worker.run_worker()

    assert WorkerHeartbeat.objects.get().pid == os.getpid()


def test_running_sessions_are_asked_to_stop_while_the_cluster_waits(cluster):
    session = running_here(boot_id=boot_id(), **living_runner())
    asked = []

    def look() -> None:
        wait_until(lambda: Session.objects.get(pk=session.pk).stop_requested)
        asked.append(Session.objects.get(pk=session.pk).stop_requested)

    cluster.while_stopping = look

    worker.run_worker()

    assert asked == ["the worker was told to stop"]


def test_sessions_of_another_host_are_not_stopped(cluster):
    session = SessionFactory(running=True, host="elsewhere")

    worker.run_worker()

    session.refresh_from_db()
    assert session.stop_requested == ""


def test_a_session_that_starts_during_the_stop_is_asked_to_stop_too(cluster):
    asked = []

    def a_tier_begins() -> None:
        session = running_here()
        asked.append(
            wait_until(lambda: Session.objects.get(pk=session.pk).stop_requested != "", 3.0)
        )

    cluster.while_stopping = a_tier_begins

    worker.run_worker()

    assert asked == [True]


def test_only_sessions_of_this_host_are_asked_to_stop():
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


def test_an_unavailable_database_does_not_prevent_the_stop(cluster, monkeypatch):
    def refuse() -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(worker, "request_stop", refuse)

    with contextlib.suppress(OperationalError):  # no process of the cluster is left, that counts
        worker.run_worker()

    assert cluster.happened == ["start", "stop"]


def test_the_command_runs_the_worker(monkeypatch):
    ran = []
    monkeypatch.setattr("escalation.management.commands.worker.run_worker", lambda: ran.append(1))

    call_command("worker")

    assert ran == [1]


def test_a_worker_exits_when_its_sentinel_has_died(cluster, monkeypatch):
    monkeypatch.setattr(cluster, "guard_lives", False)
    monkeypatch.setattr(cluster, "start", lambda self: None)

    with pytest.raises(SystemExit, match="sentinel has died"):
        worker.run_worker()
