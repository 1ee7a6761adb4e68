"""The schedules of django-q2: one for each watch, kept in step with it, and our own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.utils import timezone
from django_q.models import Schedule

from escalation.queue.one_at_a_time import one_at_a_time
from sessions_app.models import Watch

# django-q2 keeps a schedule that must not run by giving it no repeats left.
FOREVER, NEVER = -1, 0

HOUSEKEEPING: dict[str, dict[str, Any]] = {
    "cleaning": {"func": "escalation.tasks.clean_up", "schedule_type": Schedule.HOURLY},
    "recovery": {
        "func": "escalation.tasks.recover_orphans",
        "schedule_type": Schedule.MINUTES,
        "minutes": 1,
    },
    "verification": {
        "func": "escalation.tasks.verify_fixes",
        "schedule_type": Schedule.MINUTES,
        "minutes": 1,
    },
    "walls": {"func": "escalation.tasks.prove_walls", "schedule_type": Schedule.HOURLY},
}
# It takes minutes of both cores, when nobody waits for the first drill or round any more.
FIRST_AFTER = {"walls": timedelta(minutes=10)}


@receiver(post_save, sender=Watch)
def keep_schedule_in_step(sender: type[Watch], instance: Watch, **_options: Any) -> None:
    rhythm = {
        "schedule_type": Schedule.CRON if instance.cron else Schedule.MINUTES,
        "cron": instance.cron or None,
        "minutes": None if instance.cron else instance.interval_minutes,
        "repeats": FOREVER if instance.enabled else NEVER,
    }
    # Read anew: the scheduler moves `next_run` in another process.
    schedule = Schedule.objects.filter(name=schedule_name(instance)).first()
    if schedule is None:
        schedule = Schedule(
            name=schedule_name(instance),
            func="escalation.tasks.start_scheduled_cycle",
            args=str(instance.pk),
        )
    elif all(getattr(schedule, field) == value for field, value in rhythm.items()):
        return
    for field, value in rhythm.items():
        setattr(schedule, field, value)
    # A new rhythm counts from now: no run is due for the time before it.
    schedule.next_run = schedule.calculate_next_run(timezone.now())
    schedule.save()
    instance.schedule = schedule
    Watch.objects.filter(pk=instance.pk).update(schedule=schedule)


def ensure_housekeeping() -> None:
    """The installation's own schedules, by name: made once, the operator's changes stay."""
    with one_at_a_time():
        for name, facts in HOUSEKEEPING.items():
            if not Schedule.objects.filter(name=name).exists():
                first = timezone.now() + FIRST_AFTER.get(name, timedelta(0))
                Schedule.objects.create(name=name, next_run=first, **facts)


@receiver(post_delete, sender=Watch)
def drop_schedule(sender: type[Watch], instance: Watch, **_options: Any) -> None:
    Schedule.objects.filter(name=schedule_name(instance)).delete()


def schedule_name(watch: Watch) -> str:
    return f"watch-{watch.pk}"
