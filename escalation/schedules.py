"""Each watch owns one django-q2 schedule, kept in step with it."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.utils import timezone
from django_q.models import Schedule

from sessions_app.models import Watch

# django-q2 keeps a schedule that must not run by giving it no repeats left.
FOREVER, NEVER = -1, 0


@receiver(post_save, sender=Watch)
def keep_schedule_in_step(sender: type[Watch], instance: Watch, **_options: Any) -> None:
    schedule = instance.schedule or Schedule(func="escalation.tasks.start_scheduled_cycle")
    before = (schedule.schedule_type, schedule.minutes, schedule.cron, schedule.repeats)
    schedule.name = f"watch-{instance.pk}"
    schedule.args = str(instance.pk)
    schedule.schedule_type = Schedule.CRON if instance.cron else Schedule.MINUTES
    schedule.cron = instance.cron or None
    schedule.minutes = None if instance.cron else instance.interval_minutes
    schedule.repeats = FOREVER if instance.enabled else NEVER
    after = (schedule.schedule_type, schedule.minutes, schedule.cron, schedule.repeats)
    if schedule.pk is None or before != after:
        # A new rhythm counts from now: no run is due for the time before it.
        schedule.next_run = schedule.calculate_next_run(timezone.now())
    schedule.save()
    if instance.schedule_id != schedule.pk:
        instance.schedule = schedule
        Watch.objects.filter(pk=instance.pk).update(schedule=schedule)


@receiver(post_delete, sender=Watch)
def drop_schedule(sender: type[Watch], instance: Watch, **_options: Any) -> None:
    Schedule.objects.filter(name=f"watch-{instance.pk}").delete()
