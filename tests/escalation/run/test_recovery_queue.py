"""Queued sessions whose task died with a worker are enqueued again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ

from escalation import queue, tasks
from escalation.queue import LOST_TASK_AGE, enqueue_with
from escalation.run.recovery import recover
from escalation.worker.schedules import pause
from sessions_app.models import Session
from tests.escalation.recovery_cases import Handed, orphan
from tests.factories import CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db


def waiting(age: timedelta = LOST_TASK_AGE * 2) -> Session:
    session: Session = SessionFactory(
        cycle=CycleFactory(running=True), status=Session.Status.QUEUED, finished_at=None
    )
    Session.objects.filter(pk=session.pk).update(created_at=timezone.now() - age)
    return session


def take_every_task(ago: timedelta = timedelta(seconds=1)) -> None:
    """Take the tasks like a worker that dies afterwards."""
    OrmQ.objects.update(lock=timezone.now() - ago + timedelta(seconds=Conf.RETRY))


def handed_by(*, at_start: bool = False) -> list[int]:
    handed = Handed()
    with enqueue_with(handed):
        recover(at_start=at_start)
    return handed.pks


def test_a_session_without_a_task_is_enqueued():
    session = waiting()

    assert handed_by() == [session.pk]


def test_a_session_with_a_task_is_not_enqueued():
    queue.enqueue_session(waiting())

    assert handed_by() == []


def test_a_recently_queued_session_is_not_enqueued_again():
    waiting(age=timedelta(seconds=10))

    assert handed_by() == []


def test_a_task_held_by_a_worker_is_not_replaced():
    queue.enqueue_session(waiting())
    take_every_task()

    assert handed_by() == []


def test_a_task_that_was_taken_long_ago_is_replaced():
    """The worker that took it could not claim the session (a full disk), and died."""
    session = waiting()
    queue.enqueue_session(session)
    take_every_task(ago=LOST_TASK_AGE * 2)

    assert handed_by() == [session.pk]


def test_task_taken_before_the_worker_started_is_dead():
    session = waiting(age=timedelta(seconds=1))
    queue.enqueue_session(session)
    take_every_task()

    assert handed_by(at_start=True) == [session.pk]


def test_a_waiting_task_is_not_replaced_at_the_start_of_the_worker():
    queue.enqueue_session(waiting())

    assert handed_by(at_start=True) == []


def test_during_a_pause_nothing_is_enqueued():
    waiting()
    pause("maintenance")

    assert handed_by() == []


def test_during_a_pause_orphans_are_still_recovered(tmp_path):
    session = orphan(tmp_path)
    pause("maintenance")

    recover()

    session.refresh_from_db()
    assert session.status == Session.Status.INTERRUPTED


def test_a_second_recovery_enqueues_nothing_twice():
    waiting()

    recover()
    recover()

    assert OrmQ.objects.count() == 1


def test_a_successor_that_recovery_has_just_made_is_enqueued_once(tmp_path):
    orphan(tmp_path)

    recover(at_start=True)

    assert OrmQ.objects.count() == 1


@pytest.mark.parametrize("status", [Session.Status.AWAITING_APPROVAL, Session.Status.INTERRUPTED])
def test_only_queued_sessions_are_enqueued(status):
    Session.objects.filter(pk=waiting().pk).update(status=status)

    assert handed_by() == []


def test_unreadable_task_is_skipped():
    session = waiting()
    OrmQ.objects.create(key="claudeops", payload="signed by another key", lock=timezone.now())

    assert handed_by() == [session.pk]


def test_queue_task_returns_the_number_of_recoveries():
    waiting()

    assert tasks.recover_orphans() == "1 sessions needed recovery."
