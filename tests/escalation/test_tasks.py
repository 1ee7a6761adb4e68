"""What the queue calls: ids in, one sentence out."""

from __future__ import annotations

import pytest
from django.db import transaction
from django_q.models import OrmQ

from escalation import queue, tasks
from sessions_app.models import Cycle, Session
from tests.escalation.rows import ESCALATE, HEALTHY
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db


def queued() -> list[tuple[str, tuple[int, ...]]]:
    return [(entry.task["func"], tuple(entry.task["args"])) for entry in OrmQ.objects.all()]


def test_a_session_is_run_and_its_end_is_told(fake_cli, session):
    fake_cli.reports(HEALTHY)

    said = tasks.run_session(session.pk)

    assert said == f"Session {session.pk} ended as completed."


def test_the_successor_of_a_session_goes_to_the_queue(fake_cli, session):
    fake_cli.reports(ESCALATE)

    tasks.run_session(session.pk)

    assert queued() == [("escalation.tasks.run_session", (session.children.get().pk,))]


def test_a_session_that_is_taken_is_left_alone(fake_cli):
    session = SessionFactory(running=True)

    assert tasks.run_session(session.pk) == f"Session {session.pk} waits, or was already taken."
    assert fake_cli.calls == []


def test_a_session_that_is_gone_is_an_error():
    with pytest.raises(Session.DoesNotExist):
        tasks.run_session(987)


def test_a_schedule_starts_a_cycle(workdir):
    watch = WatchFactory(workdir=str(workdir))

    said = tasks.start_scheduled_cycle(watch.pk)

    cycle = watch.cycles.get()
    assert said == f"Cycle {cycle.pk} of {watch.name} was started."
    assert cycle.trigger == Cycle.Trigger.SCHEDULE
    assert queued() == [("escalation.tasks.run_session", (cycle.sessions.get().pk,))]


def test_a_paused_watch_is_not_run_by_its_schedule():
    watch = WatchFactory(enabled=False)

    assert tasks.start_scheduled_cycle(watch.pk) == f"Watch {watch.pk} is paused or gone."
    assert not Cycle.objects.exists()


def test_a_watch_that_is_gone_is_no_error():
    assert tasks.start_scheduled_cycle(987) == "Watch 987 is paused or gone."


def test_without_a_key_a_schedule_starts_nothing_and_says_why(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    watch = WatchFactory()

    said = tasks.start_scheduled_cycle(watch.pk)

    assert said.startswith(f"Watch {watch.name} was skipped.")
    assert "ANTHROPIC_API_KEY" in said
    assert not Cycle.objects.exists()


def test_a_schedule_waits_for_the_cycle_before_it():
    active = CycleFactory(running=True)

    said = tasks.start_scheduled_cycle(active.watch.pk)

    assert f"Cycle {active.pk}" in said
    assert Cycle.objects.count() == 1


def test_a_queued_task_names_its_session_and_its_cycle(session):
    queue.enqueue(session)

    task = OrmQ.objects.get().task
    assert task["name"] == f"session-{session.pk}-tier-1"
    assert task["group"] == f"cycle-{session.cycle_id}"


def test_the_queue_takes_part_in_the_transaction(session):
    with transaction.atomic():
        queue.enqueue(session)
        transaction.set_rollback(True)

    assert queued() == []
