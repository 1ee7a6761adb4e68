"""The schedule of a watch follows every change of the watch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django_q.models import Schedule

from escalation.worker.schedules import ensure_housekeeping
from sessions_app.models import Watch
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def clock():
    with time_machine.travel(NOON, tick=False) as traveller:
        yield traveller


def schedule_of(watch: Watch) -> Schedule:
    return Schedule.objects.get(name=f"watch-{watch.pk}")


def will_run(schedule: Schedule) -> bool:
    return schedule.repeats != 0


def test_a_new_watch_has_a_schedule(clock):
    watch = WatchFactory(interval_minutes=15)

    schedule = schedule_of(watch)
    assert (schedule.func, schedule.args) == (
        "escalation.tasks.start_scheduled_cycle",
        str(watch.pk),
    )
    assert schedule.next_run == NOON + timedelta(minutes=15)
    assert Watch.objects.get(pk=watch.pk).schedule == schedule
    assert will_run(schedule)


def test_a_watch_that_is_created_paused_does_not_run(clock):
    assert not will_run(schedule_of(WatchFactory(enabled=False)))


def test_a_new_interval_counts_from_now(clock):
    watch = WatchFactory(interval_minutes=60)
    clock.shift(600)

    watch.interval_minutes = 5
    watch.save()

    assert schedule_of(watch).next_run == NOON + timedelta(minutes=15)


@pytest.mark.parametrize("field", ["name", "instructions", "workdir"])
def test_editing_anything_else_does_not_move_the_next_run(clock, field):
    watch = WatchFactory(interval_minutes=60)
    clock.shift(600)

    setattr(watch, field, "changed")
    watch.save()

    assert schedule_of(watch).next_run == NOON + timedelta(minutes=60)


def test_an_edit_does_not_repeat_a_run_that_was_started_meanwhile(clock):
    watch = WatchFactory(interval_minutes=60)
    opened = Watch.objects.select_related("schedule").get(pk=watch.pk)
    later = NOON + timedelta(minutes=120)
    Schedule.objects.filter(name=f"watch-{watch.pk}").update(next_run=later)

    opened.name = "renamed"
    opened.save()

    assert schedule_of(watch).next_run == later


def test_a_paused_watch_keeps_its_schedule_but_does_not_run(clock):
    watch = WatchFactory()

    watch.enabled = False
    watch.save(update_fields=["enabled"])

    assert not will_run(schedule_of(watch))


def test_an_unpaused_watch_runs_one_interval_from_now(clock):
    watch = WatchFactory(interval_minutes=60, enabled=False)
    clock.shift(86_400)

    watch.enabled = True
    watch.save(update_fields=["enabled"])

    assert will_run(schedule_of(watch))
    assert schedule_of(watch).next_run == NOON + timedelta(days=1, minutes=60)


def test_a_cron_expression_takes_precedence_over_the_interval(clock):
    schedule = schedule_of(WatchFactory(cron="0 3 * * *", interval_minutes=5))

    assert (schedule.schedule_type, schedule.cron) == (Schedule.CRON, "0 3 * * *")
    assert schedule.next_run == datetime(2026, 3, 2, 3, 0, tzinfo=UTC)


def test_without_a_cron_expression_the_interval_counts(clock):
    watch = WatchFactory(cron="0 3 * * *", interval_minutes=30)

    watch.cron = ""
    watch.save()

    schedule = schedule_of(watch)
    assert (schedule.schedule_type, schedule.minutes, schedule.cron) == ("I", 30, None)
    assert schedule.next_run == NOON + timedelta(minutes=30)


def test_many_edits_leave_one_schedule():
    watch = WatchFactory()

    for minutes in (5, 10, 15):
        watch.interval_minutes = minutes
        watch.save()
        Watch.objects.get(pk=watch.pk).save()

    assert Schedule.objects.count() == 1


def test_a_deleted_schedule_is_created_again():
    watch = WatchFactory()
    Schedule.objects.all().delete()

    Watch.objects.get(pk=watch.pk).save()

    assert will_run(schedule_of(watch))


def test_deleting_a_watch_deletes_its_schedule():
    watch, other = WatchFactory(), WatchFactory()

    watch.delete()

    assert list(Schedule.objects.values_list("name", flat=True)) == [f"watch-{other.pk}"]


def test_deleting_several_watches_deletes_their_schedules():
    WatchFactory.create_batch(3)

    Watch.objects.all().delete()

    assert not Schedule.objects.exists()


def test_each_watch_has_its_own_schedule():
    first, second = WatchFactory(interval_minutes=5), WatchFactory(interval_minutes=7)

    assert (schedule_of(first).minutes, schedule_of(second).minutes) == (5, 7)


def test_housekeeping_schedules_are_created_once():
    ensure_housekeeping()
    ensure_housekeeping()

    assert sorted(Schedule.objects.values_list("name", "func")) == [
        ("cleaning", "escalation.tasks.clean_up"),
        ("manifests", "escalation.tasks.look_at_manifests"),
        ("recovery", "escalation.tasks.recover_orphans"),
        ("sandbox-proof", "escalation.tasks.prove_sandbox"),
        ("verification", "escalation.tasks.verify_fixes"),
    ]


def test_watch_without_a_schedule_gets_one_at_the_start():
    watch = WatchFactory(interval_minutes=5)
    Schedule.objects.all().delete()

    ensure_housekeeping()

    assert schedule_of(watch).minutes == 5
    watch.refresh_from_db()
    assert watch.schedule == schedule_of(watch)


def test_the_first_sandbox_proof_is_delayed():
    ensure_housekeeping()

    first = Schedule.objects.get(name="sandbox-proof").next_run
    assert first > datetime.now(UTC) + timedelta(minutes=5)


def test_changes_of_housekeeping_schedules_by_an_operator_are_kept():
    ensure_housekeeping()
    Schedule.objects.filter(name="recovery").update(minutes=7)

    ensure_housekeeping()

    assert Schedule.objects.get(name="recovery").minutes == 7


def test_schedules_of_an_old_version_are_renamed_and_keep_their_changes():
    Schedule.objects.create(
        name="walls", func="escalation.tasks.prove_walls", schedule_type=Schedule.DAILY
    )

    ensure_housekeeping()

    proof = Schedule.objects.get(name="sandbox-proof")
    assert (proof.func, proof.schedule_type) == ("escalation.tasks.prove_sandbox", Schedule.DAILY)
    assert not Schedule.objects.filter(name="walls").exists()
