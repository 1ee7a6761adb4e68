"""Schedules: one for each watch, those of the installation, and the pause switch."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.models.signals import post_delete, post_save, pre_delete
from django.dispatch import receiver
from django.utils import timezone
from django_q.models import Schedule

from escalation.errors import OperationRefused, RefusalCode
from escalation.queue import enqueue_session, installation_lock, waiting_sessions
from escalation.run.manifest import accept_first
from sessions_app.models import Cycle, PauseSwitch, Session, Watch
from sessions_app.redaction.redact import redacted

if TYPE_CHECKING:
    from django.contrib.auth.models import User


# django-q2 does not run a schedule that has no repeats left.
FOREVER, NEVER = -1, 0

SANDBOX_PROOF = "sandbox-proof"
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
    "manifests": {
        "func": "escalation.tasks.look_at_manifests",
        "schedule_type": Schedule.MINUTES,
        "minutes": 5,
    },
    SANDBOX_PROOF: {"func": "escalation.tasks.prove_sandbox", "schedule_type": Schedule.HOURLY},
}
# The proof takes minutes, so that the first drill or cycle comes before it.
FIRST_AFTER = {SANDBOX_PROOF: timedelta(minutes=10)}
PROOF_TAKES = "about ten minutes of processor time, at low priority and without cost"
# Names of schedules and their functions up to version 0.2.
OLD_NAMES = {"walls": SANDBOX_PROOF}
OLD_FUNCTIONS = {"escalation.tasks.prove_walls": "escalation.tasks.prove_sandbox"}


@receiver(post_save, sender=Watch)
def keep_schedule_in_step(sender: type[Watch], instance: Watch, **_options: Any) -> None:
    """Creates or changes the schedule of a watch that is saved."""
    timing = {
        "schedule_type": Schedule.CRON if instance.cron else Schedule.MINUTES,
        "cron": instance.cron or None,
        "minutes": None if instance.cron else instance.interval_minutes,
        "repeats": FOREVER if instance.enabled else NEVER,
    }
    # Read again: the scheduler changes `next_run` in another process.
    schedule = Schedule.objects.filter(name=schedule_name(instance)).first()
    if schedule is None:
        schedule = Schedule(
            name=schedule_name(instance),
            func="escalation.tasks.start_scheduled_cycle",
            args=str(instance.pk),
        )
    elif all(getattr(schedule, field) == value for field, value in timing.items()):
        return
    for field, value in timing.items():
        setattr(schedule, field, value)
    # A new schedule counts from now: nothing is due for the time before.
    schedule.next_run = schedule.calculate_next_run(timezone.now())
    schedule.save()
    instance.schedule = schedule
    Watch.objects.filter(pk=instance.pk).update(schedule=schedule)


def ensure_housekeeping() -> None:
    """Creates the schedules of the installation, and those that watches lack after a restore.

    Existing ones keep the operator's changes.
    """
    with installation_lock():
        for old, new in OLD_NAMES.items():
            if not Schedule.objects.filter(name=new).exists():
                Schedule.objects.filter(name=old).update(name=new)
        for old, new in OLD_FUNCTIONS.items():
            Schedule.objects.filter(func=old).update(func=new)
        for name, facts in HOUSEKEEPING.items():
            if not Schedule.objects.filter(name=name).exists():
                first = timezone.now() + FIRST_AFTER.get(name, timedelta(0))
                Schedule.objects.create(name=name, next_run=first, **facts)
        for watch in Watch.objects.filter(schedule=None):
            keep_schedule_in_step(Watch, watch)


def next_proof() -> datetime:
    """Return when the worker looks next whether a sandbox proof is due."""
    schedule = Schedule.objects.filter(name=SANDBOX_PROOF).first()
    found = schedule.next_run if schedule else None
    return found or timezone.now() + FIRST_AFTER[SANDBOX_PROOF]


@receiver(pre_delete, sender=Watch)
def lock_installation(sender: type[Watch], instance: Watch, **_options: Any) -> None:
    """Takes the lock before the cycles, sessions and incidents of the watch change. The lock lasts
    until the transaction of the deletion ends."""
    with installation_lock():
        pass


@receiver(post_delete, sender=Watch)
def drop_schedule(sender: type[Watch], instance: Watch, **_options: Any) -> None:
    Schedule.objects.filter(name=schedule_name(instance)).delete()


def schedule_name(watch: Watch) -> str:
    return f"watch-{watch.pk}"


def ensure_default_watch() -> None:
    """Creates the first watch, in CLAUDEOPS_WORKDIR, if there is no watch yet."""
    if settings.CLAUDEOPS_WORKDIR and not Watch.objects.exists():
        accept_first(Watch.objects.create(name=Watch.DEFAULT_NAME), by="CLAUDEOPS_WORKDIR")


def remove(watch: Watch) -> None:
    """Deletes a watch. Its sessions and incidents stay, with its name. Raises OperationRefused."""
    with installation_lock():
        active = Cycle.active_of(watch)
        if active is not None:
            raise OperationRefused(
                RefusalCode.CYCLE_ACTIVE,
                f"Cycle {active.pk} of {watch.name} is still {active.get_state_display()}: wait "
                "for it to finish, or stop its session first.",
            )
        watch.delete()


RUNNING_AGAIN = "Running again. Sessions that were waiting: {count}."


def pause(reason: str, *, by: User | None = None, stop_running: bool = False) -> int:
    """Starts no new sessions from now on. Returns how many running ones were asked to stop."""
    with installation_lock():
        _set(paused=True, reason=reason, by=by)
        if not stop_running:
            return 0
        return Session.objects.all().ask_to_stop(
            Session.StopCause.PAUSE, redacted(f"paused: {reason}")
        )


def unpause(*, by: User | None = None) -> int:
    """Ends the pause. Returns how many waiting sessions were enqueued."""
    with installation_lock():
        _set(paused=False, reason="", by=by)
        waiting = waiting_sessions(include_taken=True)
        queued = Session.objects.filter(status=Session.Status.QUEUED).select_related("cycle__watch")
        held = [session for session in queued.order_by("pk") if session.pk not in waiting]
        for session in held:
            enqueue_session(session)
    return len(held)


def _set(*, paused: bool, reason: str, by: User | None) -> None:
    PauseSwitch.objects.update_or_create(
        pk=PauseSwitch.THE_ONE,
        defaults={
            "paused": paused,
            "reason": reason,
            "changed_by": by,
            "changed_at": timezone.now(),
        },
    )
