"""Enqueueing a session, and leaving that to the caller."""

from __future__ import annotations

import pytest
from django_q.models import OrmQ

from escalation.queue import (
    enqueue_session,
    enqueue_with,
    leave_to_caller,
    start_waiting,
    wait_for_slot,
)
from sessions_app.models import Session
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def queued() -> Session:
    return SessionFactory(status=Session.Status.QUEUED)


def queued_tasks() -> list[int]:
    return [row.task["args"][0] for row in OrmQ.objects.all()]


def test_a_session_is_enqueued(queued):
    enqueue_session(queued)

    assert queued_tasks() == [queued.pk]


def test_no_task_is_written_for_a_session_that_the_caller_runs(queued):
    with leave_to_caller():
        enqueue_session(queued)

    assert queued_tasks() == []


def test_the_queue_is_used_when_the_caller_does_not_run_the_session(queued):
    with leave_to_caller(unless=True):
        enqueue_session(queued)

    assert queued_tasks() == [queued.pk]


def test_the_queue_is_used_again_after_a_block_that_failed(queued):
    with pytest.raises(RuntimeError), leave_to_caller():
        raise RuntimeError

    enqueue_session(queued)

    assert queued_tasks() == [queued.pk]


def test_a_receiver_gets_the_sessions_in_place_of_the_queue(queued):
    received: list[Session] = []

    with enqueue_with(received.append):
        enqueue_session(queued)

    assert (received, queued_tasks()) == ([queued], [])


def test_waiting_sessions_get_a_task_also_when_a_foreground_run_ends(queued):
    wait_for_slot(queued)

    with leave_to_caller():
        start_waiting()

    assert queued_tasks() == [queued.pk]
