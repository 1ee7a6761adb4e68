"""Probes, their changes and sums, calls of heartbeats, and maintenance windows."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from sessions_app.models.cycle import Fact
from sessions_app.models.fields import OutsideCharField, OutsideJSONField, OutsideTextField
from sessions_app.models.session import Session
from sessions_app.models.watch import Watch

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
SHORTEST_INTERVAL, LONGEST_INTERVAL = 5, 7 * 86_400
LONGEST_TIMEOUT = 3_600
WEEK = timedelta(days=7)


def new_token() -> str:
    """Return the unguessable part of a heartbeat's address."""
    return secrets.token_urlsafe(24)


class ProbeQuerySet(models.QuerySet["Probe"]):
    def failing(self) -> ProbeQuerySet:
        """Select the probes whose failure is hard and was passed on as a fact."""
        return self.filter(state="down", is_told=True)


class Probe(models.Model):
    """Look at a service of a watch that needs no model: its configuration and its state.

    `escalation/probes` runs it and changes the state.
    """

    class Kind(models.TextChoices):
        HTTP = "http", "HTTP"
        TCP = "tcp", "TCP"
        DNS = "dns", "DNS"
        COMMAND = "command", "command"
        FILE = "file", "file"
        DISK = "disk", "disk"
        CONTAINER = "container", "container"
        UNIT = "unit", "systemd unit"
        HEARTBEAT = "heartbeat", "heartbeat"

    class State(models.TextChoices):
        PENDING = "pending", "not run yet"
        UP = "up", "up"
        DOWN = "down", "down"

    class Status(models.IntegerChoices):
        """Status of one result, in the numbers of Nagios' exit codes."""

        OK = 0, "ok"
        WARNING = 1, "warning"
        CRITICAL = 2, "critical"
        UNKNOWN = 3, "unknown"

    STATE_FIELDS = (
        *("state", "since", "failing_since", "last_good_at", "failures", "successes", "recent"),
        *("is_flapping", "is_told"),
    )
    RESULT_FIELDS = ("last_run_at", "last_status", "last_seconds", "last_output", "memory")

    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="probes")
    service = models.CharField(max_length=200, help_text="Service of the watch, as in its reports.")
    name = models.CharField(max_length=100, help_text="Unique in the watch, like web-http.")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    target = models.CharField(
        max_length=2000,
        blank=True,
        help_text="Address, HOST:PORT, name, command or path; empty for a heartbeat.",
    )
    options = OutsideJSONField(default=dict, blank=True, help_text="Expectations of its kind.")
    interval_seconds = models.PositiveIntegerField(
        default=60,
        validators=[MinValueValidator(SHORTEST_INTERVAL), MaxValueValidator(LONGEST_INTERVAL)],
    )
    timeout_seconds = models.PositiveIntegerField(
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(LONGEST_TIMEOUT)],
        help_text="For a heartbeat: how much later it may come, and how long a job may run.",
    )
    fail_after = models.PositiveSmallIntegerField(
        default=2,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="Failures in a row after which the service is down.",
    )
    recover_after = models.PositiveSmallIntegerField(
        default=2,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="Good results in a row after which it is up again.",
    )
    needs = models.ManyToManyField(
        "self",
        symmetrical=False,
        blank=True,
        related_name="needed_by",
        help_text="Probes whose failure explains the failure of this one.",
    )
    muted_until = models.DateTimeField(
        null=True, blank=True, help_text="Its failures start nothing before this time."
    )
    token = models.CharField(
        max_length=64, unique=True, default=new_token, editable=False, help_text="Of a heartbeat."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    since = models.DateTimeField(null=True, blank=True, help_text="Start of the state.")
    failing_since = models.DateTimeField(
        null=True, blank=True, help_text="First of the failures that are not over."
    )
    last_good_at = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0, help_text="Failures in a row.")
    successes = models.PositiveIntegerField(default=0, help_text="Good results in a row.")
    recent = models.CharField(max_length=20, blank=True, help_text="Last results; 1 is good.")
    is_flapping = models.BooleanField(default=False)
    is_told = models.BooleanField(
        default=False, help_text="The failure was passed on as a fact and is not over."
    )
    run_asked_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="When a person asked for a run now."
    )
    last_run_at = models.DateTimeField(null=True, blank=True)
    last_status = models.PositiveSmallIntegerField(null=True, blank=True, choices=Status.choices)
    last_seconds = models.FloatField(null=True, blank=True, help_text="Latency.")
    last_output = OutsideTextField(blank=True)
    memory = OutsideJSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="What the kind keeps from result to result, like the number of restarts.",
    )

    objects = ProbeQuerySet.as_manager()

    class Meta:
        ordering = ["watch_id", "name"]
        constraints = [
            models.UniqueConstraint(fields=["watch", "name"], name="one_probe_per_name"),
        ]
        indexes = [
            # Failing probes of all watches: Overview, `status`, incidents.
            models.Index(fields=["id"], condition=Q(state="down"), name="probe_down"),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.state}"

    def get_absolute_url(self) -> str:
        return reverse("web:probes", args=[self.watch_id]) + f"#probe-{self.pk}"

    def clean(self) -> None:
        """Validate the name; `escalation/probes/targets.py` validates target and options."""
        if not NAME.fullmatch(self.name):
            raise ValidationError(
                {"name": "Use letters, digits, dots, dashes and underscores, like web-http."}
            )
        if not self.service.strip():
            raise ValidationError({"service": "Name the service that it looks at."})

    @property
    def is_muted(self) -> bool:
        return self.muted_until is not None and self.muted_until > timezone.now()

    @property
    def fact(self) -> Fact:
        """The failure as evidence for a cycle."""
        status = self.last_status
        return Fact(
            source="probe",
            name=self.name,
            service=self.service,
            is_failing=self.state == self.State.DOWN,
            severity=3 if status == self.Status.CRITICAL else 2,
            at=self.last_run_at or timezone.now(),
            since=self.failing_since,
            last_good=self.last_good_at,
            output=f"flapping: {self.last_output}" if self.is_flapping else self.last_output,
        )


class ProbeProposal(models.Model):
    """Probe that a report proposed, or the decision of a person on a proposal.

    Nothing runs it. `escalation/probes/proposals.py` also proposes probes without a row here: those
    of the compose file and of what Tier 1 listed.
    """

    class State(models.TextChoices):
        OPEN = "open", "waits for a person"
        ACCEPTED = "accepted", "accepted"
        DISMISSED = "dismissed", "dismissed"

    LONGEST_TARGET = 500

    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="probe_proposals")
    key = models.CharField(max_length=64, help_text="Hash of service, kind and target.")
    service = OutsideCharField(max_length=200)
    kind = models.CharField(max_length=20, choices=Probe.Kind.choices)
    target = OutsideCharField(max_length=LONGEST_TARGET, blank=True)
    why = OutsideCharField(max_length=300, blank=True)
    session = models.ForeignKey(
        Session,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="Session whose report proposed it.",
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    created_at = models.DateTimeField(default=timezone.now)
    decided_by = models.CharField(max_length=200, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["watch", "key"], name="one_proposal_per_key"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.service}: {self.state}"

    @staticmethod
    def key_of(service: str, kind: str, target: str) -> str:
        text = "\0".join((service.strip().lower(), kind, target.strip()))
        return hashlib.sha256(text.encode()).hexdigest()


class ProbeChange(models.Model):
    """Change of a probe's state, with the result that caused it. Rows are never changed."""

    class Kind(models.TextChoices):
        DOWN = "down", "down"
        UP = "up", "up"
        FLAPPING = "flapping", "flapping"
        HELD = "held", "down, held back"

    probe = models.ForeignKey(Probe, on_delete=models.CASCADE, related_name="changes")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    at = models.DateTimeField(default=timezone.now)
    status = models.PositiveSmallIntegerField(choices=Probe.Status.choices)
    output = OutsideTextField(blank=True)
    why_held = models.CharField(
        max_length=200, blank=True, help_text="Why it started nothing: maintenance, mute, needs."
    )

    class Meta:
        ordering = ["-id"]
        indexes = [
            # Changes of one probe, newest first.
            models.Index(fields=["probe", "-id"], name="probe_change"),
        ]

    def __str__(self) -> str:
        return f"{self.probe.name} {self.get_kind_display()} at {self.at:%Y-%m-%d %H:%M}"


class ProbeSum(models.Model):
    """Results of a probe in five minutes or a day: counts and a histogram of latencies."""

    class Period(models.TextChoices):
        FIVE_MINUTES = "5m", "5 minutes"
        DAY = "day", "day"

    KEPT = timedelta(days=7)
    """Age at which sums of five minutes are removed; those of days stay."""

    probe = models.ForeignKey(Probe, on_delete=models.CASCADE, related_name="sums")
    period = models.CharField(max_length=3, choices=Period.choices)
    start = models.DateTimeField(help_text="Start of the period, in UTC.")
    runs = models.PositiveIntegerField(default=0, help_text="Without those in maintenance.")
    failed = models.PositiveIntegerField(default=0)
    planned = models.PositiveIntegerField(default=0, help_text="Runs during maintenance.")
    histogram = OutsideJSONField(
        default=list, help_text="Number of results by latency, in the buckets of `latency.py`."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["probe", "period", "start"], name="one_sum_per_period"),
        ]
        indexes = [
            # Removal of old sums.
            models.Index(fields=["period", "start"], name="probe_sum_age"),
        ]

    def __str__(self) -> str:
        return f"{self.period} from {self.start:%Y-%m-%d %H:%M}"

    @property
    def uptime(self) -> float | None:
        """Share of good results; None if there are none to count."""
        return (self.runs - self.failed) / self.runs if self.runs else None


class HeartbeatPing(models.Model):
    """Call of the address of a heartbeat, stored before anything is made of it."""

    class Kind(models.TextChoices):
        START = "start", "start"
        SUCCESS = "success", "success"
        FAIL = "fail", "failure"

    LONGEST_BODY = 10_000
    KEPT = 100
    """Calls of one probe that are kept."""

    probe = models.ForeignKey(Probe, on_delete=models.CASCADE, related_name="pings")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    exit_code = models.PositiveSmallIntegerField(null=True, blank=True)
    body = OutsideTextField(blank=True)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} at {self.at:%Y-%m-%d %H:%M:%S}"


class ProbeLease(models.Model):
    """Host that runs the probes of a watch, until a time. Another host takes over afterwards."""

    LENGTH = timedelta(seconds=60)

    watch = models.OneToOneField(Watch, on_delete=models.CASCADE, related_name="probe_lease")
    host = models.CharField(max_length=255)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.watch.name} on {self.host}"


class Maintenance(models.Model):
    """Window in which failures are expected: once, every week, or until somebody ends it."""

    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="maintenance")
    service = models.CharField(max_length=200, blank=True, help_text="Empty: the whole watch.")
    starts_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField(null=True, blank=True, help_text="Empty: until it is ended.")
    is_weekly = models.BooleanField(
        "weekly", default=False, help_text="Repeat every week at the same local time."
    )
    reason = models.CharField(max_length=200, blank=True)
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ["-id"]
        verbose_name = "maintenance window"
        indexes = [
            # Windows of a watch, newest first.
            models.Index(fields=["watch", "-id"], name="maintenance_watch"),
        ]

    def __str__(self) -> str:
        return self.reason or f"maintenance {self.pk}"

    def clean(self) -> None:
        if self.is_weekly and self.ends_at is None:
            raise ValidationError({"ends_at": "A weekly window needs an end."})
        if self.ends_at is not None and self.ends_at <= self.starts_at:
            raise ValidationError({"ends_at": "The end must be after the start."})
        if self.is_weekly and self.ends_at and self.ends_at - self.starts_at > WEEK:
            raise ValidationError({"ends_at": "A weekly window is shorter than a week."})

    def holds(self, now: datetime) -> bool:
        """Return True if the time is in the window; a weekly one follows the local clock."""
        if now < self.starts_at:
            return False
        if not self.is_weekly:
            return self.ends_at is None or now < self.ends_at
        assert self.ends_at is not None, "a weekly window has an end"
        start, at = (_on_local_clock(moment) for moment in (self.starts_at, now))
        return (at - start) % WEEK < self.ends_at - self.starts_at

    @property
    def holds_now(self) -> bool:
        return self.holds(timezone.now())

    @classmethod
    def windows_of(cls, watch: Any) -> list[Maintenance]:
        """Return the windows of a watch that are not over."""
        over = Q(is_weekly=False, ends_at__lte=timezone.now())
        return list(cls.objects.filter(watch=watch).exclude(over))


def _on_local_clock(moment: datetime) -> datetime:
    return timezone.localtime(moment).replace(tzinfo=None)
