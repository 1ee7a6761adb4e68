"""Queued sessions whose task died with a worker are handed to the queue again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ

from escalation import queue, tasks
from escalation.host.pause import pause
from escalation.queue import LOST_TASK_AGE
from escalation.recovery.recover import recover
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
    """As a worker does that fetched them and died."""
    OrmQ.objects.update(lock=timezone.now() - ago + timedelta(seconds=Conf.RETRY))


def handed_by(*, at_start: bool = False) -> list[int]:
    handed = Handed()
    recover(enqueue=handed, at_start=at_start)
    return handed.pks


def test_a_session_without_a_task_is_handed_to_the_queue():
    session = waiting()

    assert handed_by() == [session.pk]


def test_a_session_with_a_task_is_not():
    queue.enqueue(waiting())

    assert handed_by() == []


def test_a_session_that_was_queued_a_moment_ago_is_not_yet_lost():
    waiting(age=timedelta(seconds=10))

    assert handed_by() == []


def test_a_task_that_some_worker_holds_is_respected_while_workers_run():
    queue.enqueue(waiting())
    take_every_task()

    assert handed_by() == []


def test_a_task_that_was_taken_long_ago_without_effect_is_lost():
    """Whoever took it could not claim the session (a full disk), and died or gave up."""
    session = waiting()
    queue.enqueue(session)
    take_every_task(ago=LOST_TASK_AGE * 2)

    assert handed_by() == [session.pk]


def test_a_task_that_was_held_when_the_worker_starts_is_dead():
    session = waiting(age=timedelta(seconds=1))
    queue.enqueue(session)
    take_every_task()

    assert handed_by(at_start=True) == [session.pk]


def test_a_waiting_task_is_respected_when_the_worker_starts():
    queue.enqueue(waiting())

    assert handed_by(at_start=True) == []


def test_while_paused_nothing_is_handed_on():
    waiting()
    pause("maintenance")

    assert handed_by() == []


def test_while_paused_orphans_are_still_brought_to_an_end(tmp_path):
    session = orphan(tmp_path)
    pause("maintenance")

    recover(enqueue=Handed())

    session.refresh_from_db()
    assert session.status == Session.Status.INTERRUPTED


def test_a_second_recovery_hands_on_nothing_twice():
    waiting()

    recover(enqueue=queue.enqueue)
    recover(enqueue=queue.enqueue)

    assert OrmQ.objects.count() == 1


def test_a_successor_that_recovery_has_just_made_is_enqueued_once(tmp_path):
    orphan(tmp_path)

    recover(enqueue=queue.enqueue, at_start=True)

    assert OrmQ.objects.count() == 1


@pytest.mark.parametrize("status", [Session.Status.AWAITING_APPROVAL, Session.Status.INTERRUPTED])
def test_only_queued_sessions_are_handed_on(status):
    Session.objects.filter(pk=waiting().pk).update(status=status)

    assert handed_by() == []


def test_a_task_that_nobody_can_read_does_not_hinder():
    session = waiting()
    OrmQ.objects.create(key="claudeops", payload="signed by another key", lock=timezone.now())

    assert handed_by() == [session.pk]


def test_the_task_of_the_queue_says_how_many_there_were():
    waiting()

    assert tasks.recover_orphans() == "1 sessions needed recovery."
