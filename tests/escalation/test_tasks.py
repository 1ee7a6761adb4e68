"""Tasks of the queue: they take ids and return one sentence."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine
from django.db import transaction
from django.utils import timezone
from django_q.models import OrmQ

from escalation import queue, tasks
from escalation.errors import CannotRun, WhyNot
from escalation.queue.broker import TaskFailed
from sessions_app.models import Cycle, RateLimit
from tests.escalation.rows import ESCALATE, HEALTHY
from tests.factories import CycleFactory, SandboxProofFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db


def queued() -> list[tuple[str, tuple[int, ...]]]:
    return [(entry.task["func"], tuple(entry.task["args"])) for entry in OrmQ.objects.all()]


def test_run_session_returns_the_ending(fake_cli, session):
    fake_cli.reports(HEALTHY)

    said = tasks.run_session(session.pk)

    assert said == f"Session {session.pk} ended as completed."


def test_the_successor_of_a_session_is_enqueued(fake_cli, session):
    fake_cli.reports(ESCALATE)

    tasks.run_session(session.pk)

    assert queued() == [("escalation.tasks.run_session", (session.children.get().pk,))]


def test_a_claimed_session_is_left_alone(fake_cli):
    session = SessionFactory(running=True)

    assert tasks.run_session(session.pk) == f"Session {session.pk} waits, or was already taken."
    assert fake_cli.calls == []


def test_a_missing_session_is_an_error():
    with pytest.raises(TaskFailed, match="DoesNotExist"):
        tasks.run_session(987)


def test_a_schedule_starts_a_cycle(workdir):
    watch = WatchFactory(workdir=str(workdir))

    said = tasks.start_scheduled_cycle(watch.pk)

    cycle = watch.cycles.get()
    assert said == f"Cycle {cycle.pk} of {watch.name} was started."
    assert cycle.trigger == Cycle.Trigger.SCHEDULE
    assert queued() == [("escalation.tasks.run_session", (cycle.sessions.get().pk,))]


def test_a_disabled_watch_is_not_run_by_its_schedule():
    watch = WatchFactory(enabled=False)

    tasks.start_scheduled_cycle(watch.pk)

    assert not Cycle.objects.exists()


def test_a_removed_watch_is_skipped():
    assert "987" in tasks.start_scheduled_cycle(987)


def test_schedule_without_credentials_starts_nothing(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    watch = WatchFactory()

    said = tasks.start_scheduled_cycle(watch.pk)

    assert said.startswith(f"Watch {watch.name} was skipped.")
    assert "ANTHROPIC_API_KEY" in said
    assert not Cycle.objects.exists()


def test_a_schedule_is_skipped_during_an_active_cycle():
    active = CycleFactory(running=True)

    said = tasks.start_scheduled_cycle(active.watch.pk)

    assert f"Cycle {active.pk}" in said
    assert Cycle.objects.count() == 1


def test_a_task_is_named_after_its_session_and_cycle(session):
    queue.enqueue_session(session)

    task = OrmQ.objects.get().task
    assert task["name"] == f"session-{session.pk}-tier-1"
    assert task["group"] == f"cycle-{session.cycle_id}"


def test_enqueueing_is_part_of_the_transaction(session):
    with transaction.atomic():
        queue.enqueue_session(session)
        transaction.set_rollback(True)

    assert queued() == []


def test_sandboxes_are_not_proved_again_unless_due(monkeypatch):
    monkeypatch.setattr(tasks, "prove_if_due", list)

    assert "proved" in tasks.prove_sandbox()


def test_a_proof_returns_its_result(monkeypatch):
    proof = SandboxProofFactory(tried=660, failed=1)
    monkeypatch.setattr(tasks, "prove_if_due", lambda: [proof])

    assert "1 of 660 failed" in tasks.prove_sandbox()


def test_a_proof_that_cannot_run_does_not_fail_the_task(monkeypatch):
    def refuse() -> None:
        raise CannotRun("no CLI here", WhyNot.CLI)

    monkeypatch.setattr(tasks, "prove_if_due", refuse)

    assert tasks.prove_sandbox().endswith("no CLI here")


def use_window(share: float) -> None:
    resets_at = (timezone.now() + timedelta(hours=1)).timestamp()
    RateLimit.objects.create(
        pk=RateLimit.THE_ONE, windows={"five_hour": {"share": share, "resets_at": resets_at}}
    )


def test_scheduled_cycle_keeps_the_rate_limit_reserve(settings):
    settings.CLAUDEOPS_RATE_LIMIT_RESERVE = Decimal("0.80")
    use_window(0.8)

    said = tasks.start_scheduled_cycle(WatchFactory(name="shop").pk)

    assert said.startswith("Watch shop was skipped: 80% of the five-hour window is used")
    assert "CLAUDEOPS_RATE_LIMIT_RESERVE is 80%" in said
    assert not Cycle.objects.exists()


@pytest.mark.parametrize(("reserve", "share"), [(None, 0.99), (Decimal("0.80"), 0.79)])
def test_scheduled_cycle_starts_below_the_reserve(settings, workdir, reserve, share):
    settings.CLAUDEOPS_RATE_LIMIT_RESERVE = reserve
    use_window(share)

    assert "was started" in tasks.start_scheduled_cycle(WatchFactory(workdir=str(workdir)).pk)


def test_a_new_window_delays_no_cycle(settings, workdir):
    settings.CLAUDEOPS_RATE_LIMIT_RESERVE = Decimal("0.80")
    use_window(0.99)

    with time_machine.travel(timezone.now() + timedelta(hours=2)):
        assert "was started" in tasks.start_scheduled_cycle(WatchFactory(workdir=str(workdir)).pk)
