"""Free slots: the oldest session that fits gets each one, once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from django_q.models import OrmQ

from escalation import tasks
from escalation.queue import (
    SessionLimits,
    WaitingSession,
    is_turn_of,
    start_waiting,
    wait_for_slot,
    waiting_sessions,
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
def test_the_oldest_session_that_fits_is_next(line, running, turn):
    assert whose_turn(line, running, SessionLimits(sessions=2, tier3_sessions=1)) == turn


@pytest.mark.django_db
def test_a_free_slot_goes_to_the_oldest_waiting_session(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    first, _second = waiting(), waiting()

    assert start_waiting() == 1
    assert handed_over() == [first.pk]


@pytest.mark.django_db
def test_every_free_slot_is_given_in_order(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 3
    SessionFactory(running=True)
    sessions = [waiting() for _ in range(4)]

    start_waiting()

    assert handed_over() == [session.pk for session in sessions[:2]]


@pytest.mark.django_db
def test_sessions_with_a_task_are_found_without_reading_the_tasks(settings):
    """All of them are looked at under the lock of the installation: reading one takes long."""
    session = waiting()
    start_waiting()
    OrmQ.objects.update(payload="unreadable")

    assert waiting_sessions(include_taken=False) == {session.pk}
    assert start_waiting() == 0


@pytest.mark.django_db
def test_without_a_free_slot_nothing_is_enqueued(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    SessionFactory(running=True)
    waiting()

    assert start_waiting() == 0
    assert handed_over() == []


@pytest.mark.django_db
def test_a_session_that_waits_for_a_slot_of_tier_3_does_not_block_others():
    SessionFactory(running=True, tier=3)
    _third, first = waiting(tier=3), waiting(tier=1)

    start_waiting()

    assert handed_over() == [first.pk]


@pytest.mark.django_db
def test_a_session_with_a_task_is_not_enqueued_again():
    waiting()

    assert [start_waiting(), start_waiting()] == [1, 0]
    assert len(handed_over()) == 1


@pytest.mark.django_db
def test_a_lost_task_is_enqueued_again():
    waiting()
    start_waiting()
    OrmQ.objects.update(lock=timezone.now() + timedelta(hours=1))

    assert start_waiting() == 1


@pytest.mark.django_db
def test_a_session_that_never_waited_is_not_enqueued():
    queued()

    assert start_waiting() == 0


@pytest.mark.django_db
@pytest.mark.parametrize("status", [Session.Status.CANCELLED, Session.Status.RUNNING])
def test_a_session_that_no_longer_waits_is_not_enqueued(status):
    waiting()
    Session.objects.update(status=status)

    assert start_waiting() == 0


@pytest.mark.django_db
def test_nothing_is_enqueued_during_a_pause():
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
def test_enqueueing_is_part_of_the_transaction_that_freed_the_slot():
    waiting()

    with transaction.atomic():
        start_waiting()
        transaction.set_rollback(True)

    assert handed_over() == []


@pytest.mark.django_db
def test_a_session_without_a_slot_waits(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    SessionFactory(running=True)
    session = queued()

    admit(session)

    session.refresh_from_db()
    assert session.waiting_since is not None


@pytest.mark.django_db
def test_a_session_keeps_the_time_of_its_first_refusal():
    session = waiting()
    since = session.waiting_since

    wait_for_slot(session)

    session.refresh_from_db()
    assert session.waiting_since == since


@pytest.mark.django_db
def test_a_session_that_starts_no_longer_waits():
    session = waiting()

    assert admit(session) == ""
    session.refresh_from_db()
    assert session.waiting_since is None


@pytest.mark.django_db
def test_a_newer_session_leaves_the_free_slot_to_an_older_one(fake_cli, settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    older, newer = waiting(), queued()

    said = tasks.run_session(newer.pk)

    newer.refresh_from_db()
    assert said == f"Session {newer.pk} waits: older sessions start first."
    assert (newer.status, newer.waiting_since is None) == (Session.Status.QUEUED, False)
    assert handed_over() == [older.pk]
    assert fake_cli.calls == []


@pytest.mark.django_db
def test_a_newer_session_starts_when_there_are_slots_for_both(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 2
    waiting()

    assert is_turn_of(queued())


@pytest.mark.django_db
def test_a_session_that_ends_enqueues_the_next(fake_cli, settings, workdir):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    session, others = queued_session(workdir), [waiting(), waiting()]
    fake_cli.reports(HEALTHY)

    tasks.run_session(session.pk)

    assert handed_over() == [others[0].pk]


@pytest.mark.django_db
def test_recovery_enqueues_sessions_whose_task_was_lost():
    session = waiting()

    tasks.recover_orphans()

    assert handed_over() == [session.pk]


@pytest.mark.django_db
def test_a_session_held_by_a_worse_sandbox_proof_does_not_block_others(settings):
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
