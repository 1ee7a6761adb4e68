from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from croniter import croniter
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.urls import reverse
from django.utils import timezone

from sessions_app.models.ask_rules import read_ask_rules
from sessions_app.models.door_words import problems_with_doors
from sessions_app.models.host_words import LONGEST_WORDS, read_host_words
from sessions_app.models.policy import Policy, read_tiers, written_tiers
from sessions_app.models.schedule_words import cron_words, interval_words, next_times
from sessions_app.models.trust import Step, step_of, trust_title
from sessions_app.models.workdir import objection_here

TIER_CHOICES = [(1, "Tier 1: observe"), (2, "Tier 2: safe remediation"), (3, "Tier 3: full")]


def default_workdir() -> str:
    return str(settings.CLAUDEOPS_WORKDIR)


def default_interval_minutes() -> int:
    return int(settings.CLAUDEOPS_INTERVAL) // 60


def default_max_tier() -> int:
    return int(settings.CLAUDEOPS_MAX_TIER)


def default_dry_run() -> bool:
    return bool(settings.CLAUDEOPS_DRY_RUN)


def default_approval() -> str:
    return written_tiers(read_tiers(settings.CLAUDEOPS_APPROVAL))


class Watch(models.Model):
    """What is looked after: a directory, what to check there, how often, and how far to go."""

    DEFAULT_NAME = "default"
    TRUST_FIELDS = ("max_tier", "dry_run", "approval")

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
        default=False,
        help_text="It runs by itself only while this is on; somebody may run it at any time.",
    )
    max_tier = models.PositiveSmallIntegerField(
        default=default_max_tier,
        choices=TIER_CHOICES,
        validators=[MinValueValidator(1), MaxValueValidator(3)],
        help_text="The supervisor never escalates above this tier.",
    )
    dry_run = models.BooleanField(
        default=default_dry_run,
        help_text="Higher tiers may think and report, and change nothing.",
    )
    approval = models.CharField(
        "tiers that need approval",
        max_length=20,
        blank=True,
        default=default_approval,
        help_text="Like 3 or 2,3: these start only after a person has approved it.",
    )
    budget_day_usd = models.DecimalField(
        "dollars a day",
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="Its runs of one day together; CLAUDEOPS_BUDGET_WATCH_DAY where it is empty.",
    )
    restarts_allowed = models.PositiveSmallIntegerField(
        default=2, help_text="Restarts of one service within the hours beside it."
    )
    restart_hours = models.PositiveSmallIntegerField(default=4, validators=[MinValueValidator(1)])
    redeployments_allowed = models.PositiveSmallIntegerField(
        default=1, help_text="Redeployments of one service within the hours beside it."
    )
    redeployment_hours = models.PositiveSmallIntegerField(
        default=24, validators=[MinValueValidator(1)]
    )
    doors = models.CharField(
        max_length=1000,
        blank=True,
        help_text="What runs here may reach beside the tier's own doors, like "
        "write:/srv/app read:/home/me/app -ssh.",
    )

    ask = models.CharField(
        "commands that need approval",
        max_length=1000,
        blank=True,
        help_text="Beside those of the tier, like Bash(docker restart:*) Bash(git push:*): each "
        "waits until a person has approved it.",
    )

    hosts = models.CharField(
        max_length=LONGEST_WORDS,
        blank=True,
        help_text="Where it runs: names of hosts or their labels (CLAUDEOPS_HOST_LABELS), like "
        "lab nas; one of them is enough. Empty: anywhere.",
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

    def get_absolute_url(self) -> str:
        return reverse("sessions_app:watch", args=[self.pk])

    def clean(self) -> None:
        """All that is wrong at once, each at its field: nobody corrects a form in six rounds."""
        found = {
            "cron": self._problem_with_cron(),
            "approval": _refused_by(read_tiers, self.approval),
            "ask": _refused_by(read_ask_rules, self.ask),
            "hosts": _refused_by(read_host_words, self.hosts),
            "doors": problems_with_doors(self.doors),
            "workdir": self._problem_with_workdir(),
        }
        if self.budget_day_usd is not None and self.budget_day_usd < 0:
            found["budget_day_usd"] = "A budget cannot be less than nothing."
        if problems := {name: problem for name, problem in found.items() if problem}:
            raise ValidationError(problems)
        self.hosts = " ".join(read_host_words(self.hosts))

    def _problem_with_cron(self) -> str:
        if not self.cron or croniter.is_valid(self.cron):
            return ""
        return f"{self.cron!r} is not a cron expression."

    def _problem_with_workdir(self) -> str:
        if objection := objection_here(self.workdir):
            return objection
        return "" if Path(self.workdir).is_dir() else f"There is no directory {self.workdir}."

    @property
    def policy(self) -> Policy:
        return Policy(
            max_tier=self.max_tier,
            dry_run=self.dry_run,
            approval_tiers=read_tiers(self.approval),
        )

    @property
    def step(self) -> Step | None:
        """How far it is trusted; None where its settings are none of the steps."""
        return step_of(self.policy)

    @property
    def trust_title(self) -> str:
        return trust_title(self.policy)

    def trust(self, step: Step) -> None:
        """As far as this step goes; the caller saves."""
        policy = step.policy
        self.max_tier, self.dry_run = policy.max_tier, policy.dry_run
        self.approval = written_tiers(policy.approval_tiers)

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
        return self.rhythm_when_on

    @property
    def rhythm_when_on(self) -> str:
        """What switching it on would start."""
        return cron_words(self.cron) if self.cron else interval_words(self.interval_minutes)

    def next_times(self, now: datetime) -> tuple[datetime, ...]:
        """The next three, in the installation's zone; of a paused watch those that switching it on
        now would give. A watch that is backed off is skipped until then."""
        due = self.next_run or now + timedelta(minutes=self.interval_minutes)
        after = max(now, self.backed_off_until) if self.backed_off_until else now
        return next_times(
            cron=self.cron,
            interval_minutes=self.interval_minutes,
            due=due,
            after=timezone.localtime(after),
        )


def _refused_by(read: Callable[[str], object], words: str) -> str:
    try:
        read(words)
    except ValueError as problem:
        return f"{problem}."
    return ""
