"""A fresh cycle verifies a fix: once, when it is due, and when it may run."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone
from django_q.models import OrmQ

from escalation import tasks
from escalation.queue import enqueue_with
from escalation.supervisor.verification import due, taking, verify_due, verify_watch
from sessions_app.models import Cycle, Incident, PauseSwitch, Watch
from tests.escalation.rows import HEALTHY
from tests.factories import CycleFactory, IncidentFactory, WatchFactory

pytestmark = pytest.mark.django_db
State = Incident.State


@pytest.fixture
def watch(workdir) -> Watch:
    watch: Watch = WatchFactory(workdir=str(workdir), max_tier=3)
    return watch


def a_fix(watch: Watch | None, minutes: int = -1, **facts) -> Incident:
    incident: Incident = IncidentFactory(
        watch=watch,
        state=State.VERIFYING,
        verify_at=timezone.now() + timedelta(minutes=minutes),
        remedy="restarted web",
        **facts,
    )
    return incident


def test_due_fixes_of_a_watch_are_verified_by_one_tier_1_cycle(watch):
    web, db = a_fix(watch), a_fix(watch)

    [cycle] = verify_due()

    assert (cycle.trigger, cycle.max_tier) == (Cycle.Trigger.VERIFICATION, 1)
    assert cycle.sessions.get().tier == 1
    assert set(cycle.incidents.all()) == {web, db}
    web.refresh_from_db()
    assert (web.verify_at, web.last_cycle, web.state) == (None, cycle, State.VERIFYING)


def test_the_prompt_does_not_mention_the_fix(watch):
    a_fix(watch)

    [cycle] = verify_due()

    assert (cycle.prompt, cycle.instructions) == ("", watch.instructions)


def test_a_clock_that_is_set_back_leaves_no_fix_unverified(watch):
    incident = a_fix(watch, minutes=60 * 24 * 365)

    assert list(due()) == [incident]


def test_a_fix_that_is_not_due_is_not_verified(watch):
    a_fix(watch, minutes=5)

    assert verify_due() == []


def test_a_verification_is_started_once(watch):
    a_fix(watch)

    verify_due()

    assert verify_due() == []
    assert watch.cycles.count() == 1


def test_a_verification_waits_for_an_active_cycle(watch):
    incident, active = a_fix(watch), CycleFactory(watch=watch, running=True)
    assert verify_due() == []

    active.finish("healthy", "well")

    assert len(verify_due()) == 1
    assert incident.cycles.count() == 1


def test_a_verification_waits_while_everything_is_paused(watch):
    a_fix(watch)
    PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE, paused=True)
    assert verify_due() == []
    assert due().count() == 1

    PauseSwitch.objects.all().delete()

    assert len(verify_due()) == 1


def test_a_fix_of_a_paused_watch_is_verified(watch):
    a_fix(watch)
    Watch.objects.update(enabled=False)

    [cycle] = verify_due()

    assert (cycle.trigger, cycle.max_tier) == (Cycle.Trigger.VERIFICATION, 1)


def test_a_verification_waits_for_a_spent_budget(watch, settings):
    a_fix(watch)
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(0)
    assert verify_due() == []
    assert due().count() == 1

    settings.CLAUDEOPS_BUDGET_DAY = None

    assert len(verify_due()) == 1


def test_when_enqueueing_fails_the_fix_stays_due(watch):
    a_fix(watch)

    def refuse(session: object) -> None:
        raise RuntimeError

    with enqueue_with(refuse), pytest.raises(RuntimeError):
        verify_watch(watch)

    assert due().count() == 1
    assert not watch.cycles.exists()


def test_the_second_of_two_processes_starts_no_verification(watch):
    a_fix(watch)

    def begin() -> Cycle:
        Incident.objects.update(verify_at=None)  # another process was first
        cycle: Cycle = CycleFactory(watch=watch, running=True)
        return cycle

    assert taking(due(), begin) is None
    assert not watch.cycles.exists()


def test_the_fix_of_a_removed_watch_is_left_to_a_person():
    incident = a_fix(None, scope="watch:9")

    verify_due()

    incident.refresh_from_db()
    assert (incident.state, incident.verify_at) == (State.OPEN, None)


def test_the_task_enqueues_the_verification_cycle(watch):
    a_fix(watch)

    said = tasks.verify_fixes()

    assert said.endswith(": 1.")
    assert OrmQ.objects.count() == 1


def test_the_task_starts_nothing_during_a_pause(watch):
    a_fix(watch)
    PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE, paused=True)

    assert "paused" in tasks.verify_fixes()
    assert not watch.cycles.exists()


def test_without_credentials_the_fix_waits_and_an_incident_is_opened(watch, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    a_fix(watch)

    tasks.verify_fixes()

    assert due().count() == 1
    assert Incident.objects.get(scope="installation").cause == "no_credentials"


def test_schedules_skipped_without_credentials_open_one_incident(watch, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    for one in (watch, WatchFactory()):
        tasks.start_scheduled_cycle(one.pk)

    incident = Incident.objects.get()
    assert (incident.kind, incident.times_seen) == (Incident.Kind.COULD_NOT_RUN, 2)


def test_a_fix_that_holds_is_verified_by_a_whole_run(watch, fake_cli):
    incident = a_fix(watch, cause="web")
    fake_cli.reports(HEALTHY)
    [cycle] = verify_due()

    tasks.run_session(cycle.sessions.get().pk)

    incident.refresh_from_db()
    assert (incident.state, incident.resolved_as) == (State.RESOLVED, "agent")
