from __future__ import annotations

from datetime import datetime
from pathlib import Path

from croniter import croniter
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from sessions_app.models.policy import Policy

TIER_CHOICES = [(1, "Tier 1: observe"), (2, "Tier 2: safe remediation"), (3, "Tier 3: full")]


def default_workdir() -> str:
    return str(settings.CLAUDEOPS_WORKDIR)


def default_interval_minutes() -> int:
    return int(settings.CLAUDEOPS_INTERVAL) // 60


def default_max_tier() -> int:
    return int(settings.CLAUDEOPS_MAX_TIER)


def default_dry_run() -> bool:
    return bool(settings.CLAUDEOPS_DRY_RUN)


class Watch(models.Model):
    """What is looked after: a directory, what to check there, how often, and how far to go."""

    DEFAULT_NAME = "default"

    name = models.CharField(max_length=100, unique=True)
    workdir = models.CharField("working directory", max_length=1000, default=default_workdir)
    instructions = models.TextField(
        blank=True,
        help_text="What Tier 1 is told to look at here, in your own words.",
    )
    interval_minutes = models.PositiveIntegerField(
        default=default_interval_minutes,
        validators=[MinValueValidator(1)],
        help_text="Time between two scheduled cycles. A cron expression, if given, wins.",
    )
    cron = models.CharField(
        max_length=100, blank=True, help_text="For example: 0 3 * * * for every night at three."
    )
    enabled = models.BooleanField(
        default=True, help_text="A paused watch runs only when somebody asks for it."
    )
    max_tier = models.PositiveSmallIntegerField(
        default=default_max_tier,
        choices=TIER_CHOICES,
        validators=[MinValueValidator(1), MaxValueValidator(3)],
        help_text="The supervisor never escalates above this tier.",
    )
    dry_run = models.BooleanField(
        default=default_dry_run,
        help_text="Look and report, but change nothing and do not escalate.",
    )

    failures_in_a_row = models.PositiveIntegerField(default=0, editable=False)
    backed_off_until = models.DateTimeField(null=True, blank=True, editable=False)
    schedule = models.OneToOneField(
        "django_q.Schedule",
        on_delete=models.SET_NULL,
        null=True,
        editable=False,
        related_name="watch",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "watches"

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        if self.cron and not croniter.is_valid(self.cron):
            raise ValidationError({"cron": f"{self.cron!r} is not a cron expression."})
        if not Path(self.workdir).is_dir():
            raise ValidationError({"workdir": f"There is no directory {self.workdir}."})

    @property
    def policy(self) -> Policy:
        return Policy(max_tier=self.max_tier, dry_run=self.dry_run)

    @property
    def is_backed_off(self) -> bool:
        """It failed so often in a row that its schedule is skipped for a while."""
        return self.backed_off_until is not None and self.backed_off_until > timezone.now()

    @property
    def next_run(self) -> datetime | None:
        """When its schedule starts it next; a paused watch has no such time."""
        return self.schedule.next_run if self.enabled and self.schedule else None

    @property
    def rhythm(self) -> str:
        """When the watch runs by itself, in words."""
        if not self.enabled:
            return "paused"
        if self.cron:
            return f"cron {self.cron}"
        if self.interval_minutes % 60 == 0:
            hours = self.interval_minutes // 60
            return "every hour" if hours == 1 else f"every {hours} hours"
        return (
            "every minute" if self.interval_minutes == 1 else f"every {self.interval_minutes} min"
        )
