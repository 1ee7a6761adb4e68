"""State of the installation: clock, pause switch, workers, rate limit, proofs, logins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, models
from django.db.models import DurationField, ExpressionWrapper, F, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils import timezone

from sessions_app.models.fields import OutsideCharField, OutsideJSONField

# The clocks of hosts may differ. Times that one host stores and another one compares, like
# heartbeats, are taken from the clock of the database.


def shared_now() -> datetime:
    """Return the time of the database, or of this host on SQLite, which has one host only."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def shared_moment(ago: timedelta = timedelta(0)) -> datetime | Combinable:
    """Return an expression for the database's time minus `ago`, for comparisons in queries."""
    return Now() - ago if connection.vendor == "postgresql" else timezone.now() - ago


def shared_age(field: str) -> Combinable:
    """Return an expression for the age of a time column."""
    now = Now() if connection.vendor == "postgresql" else Value(timezone.now())
    return ExpressionWrapper(now - F(field), output_field=DurationField())


def awake_since() -> datetime | None:
    """Return the start of the database server; before it, no heartbeat could be stored."""
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_postmaster_start_time()")
        moment: datetime = cursor.fetchone()[0]
    return moment


class PauseSwitch(models.Model):
    """Switch that stops all new sessions. There is at most one row."""

    THE_ONE = 1

    paused = models.BooleanField(default=False)
    reason = OutsideCharField(max_length=300, blank=True)
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


class WorkerHeartbeat(models.Model):
    """Last heartbeat of the worker of a host."""

    SILENCE = timedelta(minutes=2)
    """Age at which a worker counts as gone."""

    host = models.CharField(max_length=255, unique=True)
    pid = models.PositiveIntegerField()
    seen_at = models.DateTimeField(default=timezone.now)
    labels = models.CharField(
        max_length=500,
        blank=True,
        help_text="Name and labels of the host; watches choose hosts by them.",
    )
    workers = models.PositiveIntegerField(default=1, help_text="Number of concurrent sessions.")
    silence_told_at = models.DateTimeField(
        null=True, blank=True, help_text="When people were notified of missing heartbeats."
    )

    def __str__(self) -> str:
        return f"worker on {self.host}"

    @classmethod
    def lately_seen(cls) -> models.QuerySet[WorkerHeartbeat]:
        return cls.objects.filter(seen_at__gte=shared_moment(cls.SILENCE))


KINDS = {
    "five_hour": "five-hour window",
    "seven_day": "weekly window",
    "extra_usage": "extra usage",
    "requests": "rate of requests",
}


class RateLimit(models.Model):
    """Rate limit of the subscription or API key. There is at most one row.

    All sessions use the same account and wait for the end of the limit. Drills do not use it.
    """

    THE_ONE = 1

    until = models.DateTimeField(
        null=True, blank=True, help_text="No session starts before this time."
    )
    kind = OutsideCharField(max_length=50, blank=True, help_text="Window whose limit is reached.")
    words = OutsideCharField(max_length=300, blank=True, help_text="Message of the API.")
    times_in_a_row = models.PositiveIntegerField(
        default=0, help_text="Consecutive sessions that reached the limit."
    )
    windows = OutsideJSONField(
        default=dict,
        blank=True,
        help_text="Last reported used share and reset time of each window, by name.",
    )
    lifted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "rate limit"

    def __str__(self) -> str:
        return self.sentence or "no rate limit"

    @classmethod
    def current(cls) -> RateLimit:
        return cls.objects.filter(pk=cls.THE_ONE).first() or cls(pk=cls.THE_ONE)

    @classmethod
    def holding(cls) -> RateLimit | None:
        """Return the rate limit while sessions wait for it, else None."""
        limit = cls.current()
        return limit if limit.is_holding else None

    @property
    def is_holding(self) -> bool:
        return self.until is not None and self.until > timezone.now()

    @property
    def sentence(self) -> str:
        """Reason for which sessions wait, or an empty string."""
        if not self.is_holding:
            return ""
        which = f" ({KINDS[self.kind]})" if self.kind in KINDS else ""
        return f"the rate limit is reached{which}; sessions wait until {moment_text(self.until)}"

    @property
    def fullest(self) -> WindowUse | None:
        """The window with the largest used share, among those that were not reset since."""
        now = timezone.now()
        uses = (WindowUse(name, facts) for name, facts in self.windows.items())
        return max(
            (use for use in uses if use.resets_at > now), key=lambda use: use.share, default=None
        )


class WindowUse:
    """Used share of one window of the rate limit."""

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self.name = KINDS.get(name, name)
        self.share = float(facts["share"])
        self.resets_at = datetime.fromtimestamp(float(facts["resets_at"]), UTC)

    def __str__(self) -> str:
        return (
            f"{self.share:.0%} of the {self.name} is used; it resets at "
            f"{moment_text(self.resets_at)}"
        )


def moment_text(moment: datetime | None) -> str:
    return timezone.localtime(moment).strftime("%Y-%m-%d %H:%M %Z") if moment else ""


class SandboxProof(models.Model):
    """Result of one sandbox proof (`claudeops sandbox prove`)."""

    class Kind(models.TextChoices):
        CORPUS = "corpus", "harmless and hostile commands"
        ATTACKS = "attacks", "attacks"

    kind = models.CharField(max_length=20, choices=Kind.choices)
    host = models.CharField(max_length=255)
    cli_version = OutsideCharField("CLI version", max_length=100)
    cli_fingerprint = models.CharField(max_length=64)
    kernel = OutsideCharField(max_length=200)
    sandbox = OutsideCharField(
        max_length=300, help_text="Version of the sandbox, or why there is none."
    )
    rows = OutsideJSONField(
        default=list, help_text="Tier, command, expected effect, decision and effect of each trial."
    )
    tried = models.PositiveIntegerField()
    failed = models.PositiveIntegerField(
        help_text="Hostile commands with an effect, and harmless ones that did not work."
    )
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(default=timezone.now)
    is_worse = models.BooleanField(
        default=False, help_text="More failures than in the proof before; higher tiers wait."
    )
    accepted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    accepted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.failed} of {self.tried} failed"

    @classmethod
    def holding(cls) -> SandboxProof | None:
        """Return the proof that higher tiers wait for, or None."""
        return cls.all_holding().defer("rows").first()

    @classmethod
    def all_holding(cls) -> models.QuerySet[SandboxProof]:
        """Select the newest proof of each kind if it is worse and not accepted.

        Every page runs this query, so it does not read the older rows.
        """
        newest = cls.objects.order_by().values("kind").annotate(newest=models.Max("pk"))
        return cls.objects.filter(pk__in=newest.values("newest"), is_worse=True, accepted_at=None)

    @property
    def holds_higher_tiers(self) -> bool:
        """True if tiers above Tier 1 wait until an operator accepts the worse proof."""
        return self.is_worse and self.accepted_at is None


class AccountSeen(models.Model):
    """Last request of an account, a few minutes precise."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="seen"
    )
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.user_id} at {self.at}"


class LoginFailure(models.Model):
    """Failed login. Stored in the database, so that all web processes count together."""

    username = models.CharField(max_length=150)
    address = models.CharField(max_length=45)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [
            # Recent failures, and the removal of old ones.
            models.Index(fields=["at"], name="login_failure_at"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.username} from {self.address}"


class AppliedDeclaration(models.Model):
    """Something that `claudeops apply` took from a file, as the file declared it."""

    kind = models.CharField(max_length=20, help_text="watch, source or channel")
    name = models.CharField(max_length=100)
    file = models.CharField(max_length=1000)
    words = OutsideJSONField(
        default=list,
        help_text="Of a watch: itself and its probes, remedies and maintenance, as applied.",
    )
    applied_at = models.DateTimeField(default=timezone.now)
    applied_by = models.CharField(max_length=200)

    class Meta:
        ordering = ["kind", "name"]
        constraints = [
            models.UniqueConstraint(fields=["kind", "name"], name="one_declaration_per_name"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} from {self.file}"
