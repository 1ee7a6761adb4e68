"""Whose turn it is when a place is free: the oldest that fits, and each place once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from django_q.models import OrmQ

from escalation import tasks
from escalation.queue import waiting_sessions
from escalation.queue.slots import (
    SessionLimits,
    WaitingSession,
    is_turn_of,
    start_waiting,
    wait_for_slot,
    whose_turn,
)
from escalation.run.runner import admit
from escalation.worker.schedules import pause, unpause
from sessions_app.models import Session
from tests.escalation.rows import HEALTHY, queued_session
from tests.factories import CycleFactory, SandboxProofFactory, SessionFactory
from tests.tables import each_row


def queued(**facts) -> Session:
    session: Session = SessionFactory(
        cycle=CycleFactory(running=True),
        status=Session.Status.QUEUED,
        started_at=None,
        finished_at=None,
        **facts,
    )
    return session


def waiting(**facts) -> Session:
    return queued(waiting_since=timezone.now(), **facts)


def handed_over() -> list[int]:
    return [row.task["args"][0] for row in OrmQ.objects.order_by("pk")]


@each_row(
    ("line", "running", "turn"),
    [
        ([], [], []),
        ([WaitingSession(5, 1)], [], [5]),
        ([WaitingSession(5, 1)], [1, 1], []),
        ([WaitingSession(9, 1), WaitingSession(5, 1)], [1], [5]),
        ([WaitingSession(5, 3), WaitingSession(9, 1)], [], [5, 9]),
        ([WaitingSession(5, 3), WaitingSession(9, 1)], [3], [9]),
        ([WaitingSession(5, 3), WaitingSession(9, 3)], [], [5]),
        ([WaitingSession(5, 1), WaitingSession(6, 2), WaitingSession(7, 1)], [], [5, 6]),
    ],
)
def test_the_oldest_that_fits_is_next(line, running, turn):
    assert whose_turn(line, running, SessionLimits(sessions=2, tier3_sessions=1)) == turn


@pytest.mark.django_db
def test_a_free_place_goes_to_the_one_that_has_waited_longest(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    first, _second = waiting(), waiting()

    assert start_waiting() == 1
    assert handed_over() == [first.pk]


@pytest.mark.django_db
def test_every_free_place_is_given_in_order(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 3
    SessionFactory(running=True)
    sessions = [waiting() for _ in range(4)]

    start_waiting()

    assert handed_over() == [session.pk for session in sessions[:2]]


@pytest.mark.django_db
def test_who_has_a_task_is_found_without_reading_the_tasks(settings):
    """All of them are looked at under the lock of the installation: reading one takes long."""
    session = waiting()
    start_waiting()
    OrmQ.objects.update(payload="unreadable")

    assert waiting_sessions(include_taken=False) == {session.pk}
    assert start_waiting() == 0


@pytest.mark.django_db
def test_where_no_place_is_free_nobody_is_called(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    SessionFactory(running=True)
    waiting()

    assert start_waiting() == 0
    assert handed_over() == []


@pytest.mark.django_db
def test_one_that_waits_for_a_place_of_tier_3_does_not_hold_up_the_others():
    SessionFactory(running=True, tier=3)
    _third, first = waiting(tier=3), waiting(tier=1)

    start_waiting()

    assert handed_over() == [first.pk]


@pytest.mark.django_db
def test_who_is_called_already_is_not_called_again():
    waiting()

    assert [start_waiting(), start_waiting()] == [1, 0]
    assert len(handed_over()) == 1


@pytest.mark.django_db
def test_a_call_that_a_worker_took_and_lost_is_repeated():
    waiting()
    start_waiting()
    OrmQ.objects.update(lock=timezone.now() + timedelta(hours=1))

    assert start_waiting() == 1


@pytest.mark.django_db
def test_a_session_that_was_never_refused_is_not_called():
    queued()

    assert start_waiting() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("status", [Session.Status.CANCELLED, Session.Status.RUNNING])
def test_a_session_that_waits_no_more_is_not_called(status):
    waiting()
    Session.objects.update(status=status)

    assert start_waiting() == 0


@pytest.mark.django_db
def test_nobody_is_called_during_a_pause():
    waiting()
    pause("new disks")

    assert start_waiting() == 0


@pytest.mark.django_db
def test_after_a_pause_the_oldest_is_first():
    sessions = [waiting(), waiting(), waiting()]
    pause("new disks")

    unpause()

    assert handed_over() == [session.pk for session in sessions]


@pytest.mark.django_db
def test_the_call_is_part_of_the_transaction_that_freed_the_place():
    waiting()

    with transaction.atomic():
        start_waiting()
        transaction.set_rollback(True)

    assert handed_over() == []


@pytest.mark.django_db
def test_a_session_without_a_place_begins_to_wait(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    SessionFactory(running=True)
    session = queued()

    admit(session)

    session.refresh_from_db()
    assert session.waiting_since is not None


@pytest.mark.django_db
def test_a_session_refused_again_has_waited_since_the_first_time():
    session = waiting()
    since = session.waiting_since

    wait_for_slot(session)

    session.refresh_from_db()
    assert session.waiting_since == since


@pytest.mark.django_db
def test_a_session_that_starts_waits_no_more():
    session = waiting()

    assert admit(session) == ""
    session.refresh_from_db()
    assert session.waiting_since is None


@pytest.mark.django_db
def test_a_newer_session_leaves_the_free_place_to_an_older_one(fake_cli, settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    older, newer = waiting(), queued()

    said = tasks.run_session(newer.pk)

    newer.refresh_from_db()
    assert said == f"Session {newer.pk} waits: older sessions start first."
    assert (newer.status, newer.waiting_since is None) == (Session.Status.QUEUED, False)
    assert handed_over() == [older.pk]
    assert fake_cli.calls == []


@pytest.mark.django_db
def test_a_newer_session_starts_where_there_is_room_for_both(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 2
    waiting()

    assert is_turn_of(queued())


@pytest.mark.django_db
def test_a_session_that_ends_calls_the_next(fake_cli, settings, workdir):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    session, others = queued_session(workdir), [waiting(), waiting()]
    fake_cli.reports(HEALTHY)

    tasks.run_session(session.pk)

    assert handed_over() == [others[0].pk]


@pytest.mark.django_db
def test_recovery_calls_those_whose_call_died_with_a_process():
    session = waiting()

    tasks.recover_orphans()

    assert handed_over() == [session.pk]


@pytest.mark.django_db
def test_who_is_held_back_by_the_sandbox_keeps_no_place_from_others(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    proof = SandboxProofFactory(failed=1, is_worse=True)
    held, free = waiting(tier=2), waiting(tier=1)

    assert is_turn_of(free)
    start_waiting()
    assert handed_over() == [free.pk]

    proof.accepted_at = timezone.now()
    proof.save()
    OrmQ.objects.all().delete()
    start_waiting()
    assert handed_over() == [held.pk]
