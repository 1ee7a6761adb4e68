from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone

from sessions_app.models.clock import shared_moment


class PauseSwitch(models.Model):
    """The one switch that stops all new tiers at once. There is at most one row."""

    THE_ONE = 1

    paused = models.BooleanField(default=False)
    reason = models.CharField(max_length=300, blank=True)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "pause switch"

    def __str__(self) -> str:
        return f"paused: {self.reason}" if self.paused else "running"

    @classmethod
    def current(cls) -> PauseSwitch:
        return cls.objects.filter(pk=cls.THE_ONE).first() or cls(pk=cls.THE_ONE)

    @classmethod
    def is_on(cls) -> bool:
        return cls.current().paused


class WorkerBeat(models.Model):
    """When a worker was last seen, so that silence can be noticed."""

    SILENCE = timedelta(minutes=2)
    """A worker that was not seen for so long is gone."""

    host = models.CharField(max_length=255, unique=True)
    pid = models.PositiveIntegerField()
    seen_at = models.DateTimeField(default=timezone.now)
    labels = models.CharField(
        max_length=500, blank=True, help_text="Its name and its labels: what is bound to one runs."
    )
    workers = models.PositiveIntegerField(
        default=1, help_text="How many sessions it may run at once."
    )
    silence_told_at = models.DateTimeField(
        null=True, blank=True, help_text="When people were told that it is silent."
    )

    def __str__(self) -> str:
        return f"worker on {self.host}"

    @classmethod
    def lately_seen(cls) -> models.QuerySet[WorkerBeat]:
        return cls.objects.filter(seen_at__gte=shared_moment(cls.SILENCE))
