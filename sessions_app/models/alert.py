"""Sources of alerts, their deliveries, and the problems that they report."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from sessions_app.models.cycle import Cycle
from sessions_app.models.fields import OutsideCharField, OutsideJSONField, OutsideTextField
from sessions_app.models.incident import Incident
from sessions_app.models.watch import Watch


class SourceKind(models.TextChoices):
    ALERTMANAGER = "alertmanager", "Alertmanager"
    GRAFANA = "grafana", "Grafana"
    UPTIME_KUMA = "uptime-kuma", "Uptime Kuma"
    HEALTHCHECKS = "healthchecks", "Healthchecks"
    GENERIC = "generic", "any JSON"
    PAGERDUTY = "pagerduty", "PagerDuty Events v2"
    ALERTMANAGER_API = "alertmanager-api", "Prometheus (API of Alertmanager)"


class Source(models.Model):
    """A system that sends alerts to an address with a token of its own.

    The token is stored as a hash, and cannot be displayed again. The secret is encrypted, because
    signatures are computed with it.
    """

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=SourceKind.choices)
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    encrypted_secret = models.BinaryField(
        blank=True, default=b"", help_text="Secret header or key of the signature; empty: none."
    )
    watch = models.ForeignKey(
        Watch,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="sources",
        help_text="Watch of the alerts that no route matches.",
    )
    routes = OutsideTextField(
        blank=True,
        help_text="One route in each line: a label, =, its value, a space and the name of a watch.",
    )
    service_label = models.CharField(
        max_length=100, blank=True, help_text="Label that names the service; empty: the usual ones."
    )
    paths = OutsideJSONField(
        default=dict, blank=True, help_text="For any JSON: the dotted path of each field."
    )
    sample = OutsideJSONField(
        null=True,
        blank=True,
        editable=False,
        help_text="For any JSON: a delivery to choose paths from, redacted.",
    )
    runs_again = models.BooleanField(
        "run again",
        default=True,
        help_text="A problem that gets worse, or that joins an open incident, starts a cycle.",
    )
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("web:source", args=[self.pk])


class Delivery(models.Model):
    """One delivery of a source, stored before it is judged.

    The body is encrypted until then. What is kept of it afterwards is redacted.
    """

    class Verdict(models.TextChoices):
        WAITING = "", "waiting"
        RUN = "run", "started a cycle"
        COLLECTED = "collected", "added to a cycle under way"
        NOTED = "noted", "noted"
        REPLAY = "replay", "same delivery again"
        TEST = "test", "test"
        NO_WATCH = "no_watch", "no watch for it"
        NOT_RUN = "not_run", "no cycle could start"
        UNREADABLE = "unreadable", "not understood"

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="deliveries")
    received_at = models.DateTimeField(default=timezone.now)
    identity = models.CharField(max_length=64, help_text="Hash of the body, to find replays.")
    size = models.PositiveIntegerField(help_text="Bytes.")
    is_test = models.BooleanField(default=False)
    encrypted_body = models.BinaryField(blank=True, default=b"")
    tries = models.PositiveSmallIntegerField(default=0)
    judged_at = models.DateTimeField(null=True, blank=True)
    verdict = models.CharField(
        max_length=20, choices=Verdict.choices, blank=True, default=Verdict.WAITING
    )
    became = OutsideCharField(max_length=300, blank=True, help_text="What it led to.")
    alerts = models.PositiveIntegerField(default=0, help_text="Number of alerts in it.")
    content = OutsideJSONField(default=list, blank=True, help_text="Its alerts, redacted.")
    cycle = models.ForeignKey(
        Cycle, on_delete=models.SET_NULL, null=True, blank=True, related_name="deliveries"
    )

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        indexes = [
            # Deliveries that wait for their verdict, oldest first.
            models.Index(
                fields=["id"], condition=Q(judged_at__isnull=True), name="delivery_waiting"
            ),
            # Page of a source, newest first.
            models.Index(fields=["source", "-id"], name="delivery_source"),
            # Housekeeping.
            models.Index(fields=["received_at"], name="delivery_received"),
        ]

    def __str__(self) -> str:
        return f"Delivery {self.pk} of {self.source}"


class Alert(models.Model):
    """One problem as its source identifies it, from the first delivery until it is resolved."""

    class State(models.TextChoices):
        FIRING = "firing", "firing"
        RESOLVED = "resolved", "resolved"

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="problems")
    fingerprint = OutsideCharField(max_length=255)
    group = OutsideCharField(max_length=255, blank=True)
    watch = models.ForeignKey(
        Watch, on_delete=models.SET_NULL, null=True, blank=True, related_name="alerts"
    )
    incident = models.ForeignKey(
        Incident, on_delete=models.SET_NULL, null=True, blank=True, related_name="alerts"
    )
    state = models.CharField(max_length=20, choices=State.choices, default=State.FIRING)
    service = OutsideCharField(max_length=200)
    severity = models.PositiveSmallIntegerField(choices=Incident.Severity.choices)
    summary = OutsideCharField(max_length=300)
    detail = OutsideTextField(blank=True)
    labels = OutsideJSONField(default=dict, blank=True)
    first_seen_at = models.DateTimeField(default=timezone.now, help_text="By our clock.")
    last_seen_at = models.DateTimeField(default=timezone.now, help_text="By our clock.")
    resolved_at = models.DateTimeField(null=True, blank=True, help_text="By our clock.")
    starts_at = models.DateTimeField(null=True, blank=True, help_text="As the sender says.")
    times_seen = models.PositiveIntegerField(default=1)
    noted_at = models.DateTimeField(
        default=timezone.now, help_text="Last entry in the history of the incident."
    )

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["source", "fingerprint"], name="one_alert_per_fingerprint"
            ),
        ]
        indexes = [
            # Members of a group that ends.
            models.Index(
                fields=["source", "group"], condition=Q(state="firing"), name="alert_firing_group"
            ),
            # Firing alerts of an incident, and of a watch.
            models.Index(
                fields=["watch", "incident"], condition=Q(state="firing"), name="alert_firing"
            ),
            # Housekeeping.
            models.Index(fields=["last_seen_at"], name="alert_last_seen"),
        ]

    def __str__(self) -> str:
        return f"{self.summary} ({self.state})"


class RefusedDeliveries(models.Model):
    """Number of requests that were refused in a minute, by reason. Nothing of them is stored."""

    class Reason(models.TextChoices):
        UNKNOWN_TOKEN = "unknown_token", "unknown address"
        WRONG_SECRET = "wrong_secret", "wrong or missing secret"
        DISABLED = "disabled", "the source is off"
        METHOD = "method", "wrong method"
        TOO_LARGE = "too_large", "over 1 MB"
        UNREADABLE = "unreadable", "not JSON, or nested too deeply"

    source = models.ForeignKey(
        Source, on_delete=models.CASCADE, null=True, blank=True, related_name="refused"
    )
    minute = models.DateTimeField()
    reason = models.CharField(max_length=20, choices=Reason.choices)
    count = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-minute"]
        verbose_name_plural = "refused deliveries"
        indexes = [
            # Page of the sources, and housekeeping.
            models.Index(fields=["-minute"], name="refused_minute"),
        ]

    def __str__(self) -> str:
        return f"{self.count} × {self.get_reason_display()}"
