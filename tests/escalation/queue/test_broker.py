"""The queue: oldest first, each task once, idle until a task is due."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings as real_settings
from django.db import OperationalError, connection, transaction
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.models import OrmQ

from escalation.queue.broker import WakingBroker, seconds_to_sleep

pytestmark = pytest.mark.django_db(transaction=True)
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def patient(monkeypatch) -> None:
    """Nothing is found by polling within a test."""
    monkeypatch.setattr(Conf, "POLL", 600)


def broker() -> WakingBroker:
    return WakingBroker("claudeops")


def payloads(taken) -> list[str]:
    return [payload for _key, payload in taken]


def test_the_installation_uses_this_broker():
    assert isinstance(get_broker(), WakingBroker)


def test_a_task_wakes_a_sleeping_worker():
    worker, web = broker(), broker()
    worker.dequeue()

    def enqueue() -> None:
        web.enqueue("work")
        connection.close()

    threading.Timer(0.1, enqueue).start()
    began = time.monotonic()
    taken = []
    while not taken and time.monotonic() - began < 20:
        taken = worker.dequeue()

    assert payloads(taken) == ["work"]
    assert time.monotonic() - began < 10


def test_an_uncommitted_task_wakes_no_worker():
    worker, web = broker(), broker()
    worker.dequeue()

    with transaction.atomic():
        web.enqueue("work")
        transaction.set_rollback(True)

    assert not worker._wakeup.wait(0)
    assert not OrmQ.objects.exists()


def test_a_sleeping_worker_makes_no_query(django_assert_num_queries):
    worker = broker()
    worker.dequeue()

    with django_assert_num_queries(0):
        assert worker.dequeue() == []


def test_without_a_wakeup_a_task_is_found_by_polling(monkeypatch):
    monkeypatch.setattr(Conf, "POLL", 0.05)
    worker = broker()
    worker.dequeue()
    OrmQ.objects.create(key="claudeops", payload="work", lock=timezone.now())

    time.sleep(0.06)

    assert payloads(worker.dequeue()) == ["work"]


def test_the_oldest_task_is_first():
    worker = broker()
    for payload in ("first", "second", "third"):
        worker.enqueue(payload)
    OrmQ.objects.filter(payload="first").update(lock=timezone.now())

    assert [payloads(worker.dequeue()) for _ in range(3)] == [["first"], ["second"], ["third"]]


def test_a_task_is_taken_once():
    broker().enqueue("work")
    one, another = broker(), broker()

    assert payloads(one.dequeue()) == ["work"]
    assert another.dequeue() == []


def test_a_task_taken_by_another_worker_is_not_taken():
    worker = broker()
    worker.enqueue("work")
    seen = OrmQ.objects.get()
    OrmQ.objects.update(lock=timezone.now() + timedelta(hours=1))

    assert not worker._take(seen, timezone.now())


def test_a_taken_task_is_locked_until_its_retry():
    worker = broker()
    worker.enqueue("work")

    worker.dequeue()

    locked_for = OrmQ.objects.get().lock - timezone.now()
    assert locked_for.total_seconds() == pytest.approx(Conf.RETRY, abs=60)


def test_an_expired_lock_ends_the_sleep():
    worker = broker()
    OrmQ.objects.create(
        key="claudeops", payload="again", lock=timezone.now() + timedelta(seconds=0.2)
    )
    began = time.monotonic()
    taken = []
    while not taken and time.monotonic() - began < 20:
        taken = worker.dequeue()

    assert payloads(taken) == ["again"]
    assert time.monotonic() - began < 10


def test_tasks_of_another_cluster_are_not_taken():
    OrmQ.objects.create(key="another", payload="work", lock=timezone.now())

    assert broker().dequeue() == []


def test_an_unavailable_database_does_not_end_the_worker(monkeypatch, caplog):
    worker = broker()
    worker.enqueue("work")
    monkeypatch.setattr(Conf, "POLL", 0)

    def refuse() -> None:
        raise OperationalError("database is locked")

    with monkeypatch.context() as refusing:
        refusing.setattr(worker, "_look", refuse)
        assert worker.dequeue() == []

    assert "Could not read the queue" in caplog.text
    assert payloads(worker.dequeue()) == ["work"]


def test_a_stopping_worker_takes_no_task(monkeypatch):
    closing = threading.Event()
    monkeypatch.setattr(WakingBroker, "is_closing", staticmethod(closing.is_set))
    worker = broker()
    for payload in ("before", "after"):
        worker.enqueue(payload)
    before = worker.dequeue()

    closing.set()

    assert payloads(before) == ["before"]
    assert worker.dequeue() == []


def test_without_locks_the_sleep_is_the_polling_interval(monkeypatch):
    monkeypatch.setattr(Conf, "POLL", 5)

    assert seconds_to_sleep(NOON, None) == 5


@pytest.mark.parametrize(("due", "seconds"), [(-3, 0), (0, 0), (2, 2), (5, 5), (3600, 5)])
def test_the_sleep_ends_with_the_next_lock(monkeypatch, due, seconds):
    monkeypatch.setattr(Conf, "POLL", 5)

    assert seconds_to_sleep(NOON, NOON + timedelta(seconds=due)) == seconds


def test_the_polling_interval_is_at_most_ten_seconds():
    assert real_settings.Q_CLUSTER["poll"] in range(1, 11)


def test_an_unreadable_task_is_left_to_other_hosts(caplog):
    here, elsewhere = broker(), broker()
    here.enqueue("signed with another key")
    ((number, _payload),) = here.dequeue()

    here.fail(number)

    assert here.dequeue() == []
    assert payloads(elsewhere.dequeue()) == ["signed with another key"]
    assert "CLAUDEOPS_SECRET_KEY" in caplog.text
