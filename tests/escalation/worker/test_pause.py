"""The pause switch: no new tier starts while it is on, and all start afterwards."""

from __future__ import annotations

import pytest
from django_q.models import OrmQ

from escalation import queue, tasks
from escalation.queue import enqueue_with
from escalation.run import runner
from escalation.worker.schedules import pause, unpause
from sessions_app.models import Cycle, PauseSwitch, Session
from tests.escalation.recovery_cases import Handed
from tests.escalation.rows import HEALTHY
from tests.escalation.runs import escalated
from tests.factories import SessionFactory, UserFactory, WatchFactory

pytestmark = pytest.mark.django_db


def test_a_new_installation_is_not_paused():
    assert not PauseSwitch.is_on()
    assert not PauseSwitch.objects.exists()


def test_a_pause_stores_reason_person_and_time():
    person = UserFactory()

    pause("the disks are being changed", by=person)

    switch = PauseSwitch.current()
    assert (switch.paused, switch.reason) == (True, "the disks are being changed")
    assert switch.changed_by == person
    assert str(switch) == "paused: the disks are being changed"


def test_unpausing_clears_the_reason():
    pause("x")

    unpause()

    assert not PauseSwitch.is_on()
    assert str(PauseSwitch.current()) == "running"


def test_there_is_only_one_switch():
    pause("first")
    pause("second")

    assert PauseSwitch.objects.get().reason == "second"


def test_a_reason_of_any_length_is_accepted():
    pause("x" * 5000, stop_running=True)

    assert len(PauseSwitch.current().reason) == 300


def test_a_paused_session_does_not_start_and_stays_queued(fake_cli, session):
    pause("x")

    assert runner.run(session) is False
    session.refresh_from_db()
    assert session.status == Session.Status.QUEUED
    assert fake_cli.calls == []


def test_the_task_of_a_paused_session_reports_the_pause(fake_cli, session):
    pause("x")

    assert "waits" in tasks.run_session(session.pk)


def test_a_scheduled_cycle_is_skipped_with_the_reason():
    watch = WatchFactory(name="shop")
    pause("x")

    assert tasks.start_scheduled_cycle(watch.pk) == (
        "Watch shop was skipped: Claude Ops is paused."
    )
    assert not Cycle.objects.exists()


def test_the_switch_is_checked_again_before_the_cli_starts(fake_cli, session, monkeypatch):
    fake_cli.reports(HEALTHY)
    monkeypatch.setattr(runner, "resume_limits", lambda: pause("just now") or "none")

    runner.run(session)

    session.refresh_from_db()
    assert fake_cli.calls == []
    assert session.status == Session.Status.QUEUED
    assert "paused" in session.events.filter(kind="status").last().payload["text"]


def test_a_pause_before_the_cli_starts_is_no_failure_of_the_watch(fake_cli, session, monkeypatch):
    fake_cli.reports(HEALTHY)
    monkeypatch.setattr(runner, "resume_limits", lambda: pause("just now") or "none")

    runner.run(session)

    session.cycle.watch.refresh_from_db()
    assert session.cycle.watch.failures_in_a_row == 0


def test_an_escalation_during_a_pause_waits(fake_cli, session):
    second = escalated(fake_cli, session)
    pause("x")

    assert runner.run(second) is False


def test_running_tiers_continue_unless_asked_to_stop():
    session = SessionFactory(running=True)

    assert pause("x") == 0
    session.refresh_from_db()
    assert session.stop_requested == ""


def test_running_tiers_can_be_asked_to_stop():
    running = SessionFactory.create_batch(2, running=True)
    SessionFactory()

    assert pause("fire in the rack", stop_running=True) == 2
    running[0].refresh_from_db()
    assert running[0].stop_requested == "paused: fire in the rack"


def test_the_first_stop_request_is_kept():
    session = SessionFactory(running=True, stop_cause="person", stop_requested="by the operator")

    assert pause("x", stop_running=True) == 0
    session.refresh_from_db()
    assert session.stop_requested == "by the operator"


def test_a_running_tier_that_is_asked_to_stop_ends_as_interrupted(fake_cli, session):
    fake_cli.then("init(); say(); time.sleep(60)")

    def pause_when_it_speaks(event) -> None:
        if event.kind == "assistant":
            pause("fire in the rack", stop_running=True)

    runner.run(session, listener=pause_when_it_speaks)

    session.refresh_from_db()
    assert session.status == Session.Status.INTERRUPTED
    assert "fire in the rack" in session.error


def test_unpausing_enqueues_waiting_sessions():
    waiting = SessionFactory(status=Session.Status.QUEUED)
    SessionFactory()
    pause("x")
    handed = Handed()

    with enqueue_with(handed):
        assert unpause() == 1
    assert handed.pks == [waiting.pk]


def test_unpausing_does_not_enqueue_a_session_with_a_task():
    queue.enqueue_session(SessionFactory(status=Session.Status.QUEUED))
    pause("x")

    assert unpause() == 0
    assert OrmQ.objects.count() == 1


def test_unpausing_twice_enqueues_once():
    SessionFactory(status=Session.Status.QUEUED)
    pause("x")

    assert [unpause() for _ in range(2)] == [1, 0]
    assert OrmQ.objects.count() == 1


def test_after_a_pause_the_session_runs(fake_cli, session):
    fake_cli.reports(HEALTHY)
    pause("x")
    runner.run(session)
    unpause()

    runner.run(session)

    session.refresh_from_db()
    assert session.status == Session.Status.COMPLETED
