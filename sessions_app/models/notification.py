"""Notifications, the channels they are sent through, and the messages of the outbox."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from sessions_app.models.approval import Approval
from sessions_app.models.cycle import Cycle
from sessions_app.models.fields import OutsideCharField, OutsideTextField
from sessions_app.models.incident import Incident
from sessions_app.models.watch import Watch

NO_INCIDENT_EVENT = Q(incident=None) | Q(approval__isnull=False)
"""Notifications without an equivalent `IncidentEvent`."""


class Notification(models.Model):
    """Event that people may want to know about.

    Stored in the transaction of the event; `escalation/notifications` chooses the channels later.
    """

    class Kind(models.TextChoices):
        INCIDENT_OPENED = "incident_opened", "incident opened"
        INCIDENT_CHANGED_HANDS = "incident_changed_hands", "incident assigned"
        INCIDENT_RESOLVED = "incident_resolved", "incident resolved"
        FIX_VERIFIED = "fix_verified", "fix verified"
        FIX_DID_NOT_HOLD = "fix_did_not_hold", "fix failed"
        APPROVAL_WANTED = "approval_wanted", "approval needed"
        BUDGET = "budget", "budget almost or completely spent"
        COOLDOWN = "cooldown", "remedy stopped by a cooldown"
        SANDBOX_WORSE = "sandbox_worse", "sandbox proof got worse"
        WORKER_SILENT = "worker_silent", "no worker heartbeat"

    kind = models.CharField(max_length=30, choices=Kind.choices)
    at = models.DateTimeField(default=timezone.now)
    severity = models.PositiveSmallIntegerField(choices=Incident.Severity.choices)
    watch = models.ForeignKey(Watch, on_delete=models.SET_NULL, null=True, blank=True)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, blank=True)
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, null=True, blank=True)
    cycle = models.ForeignKey(
        Cycle,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="Notifications of one cycle that come together are one message.",
    )
    title = OutsideCharField(max_length=200)
    text = OutsideTextField(blank=True)
    path = models.CharField(max_length=300, blank=True, help_text="Page that shows it.")
    passed_on_at = models.DateTimeField(
        null=True, blank=True, help_text="When the channels were chosen."
    )

    class Meta:
        ordering = ["id"]
        indexes = [
            # Notifications whose channels are not chosen yet.
            models.Index(fields=["passed_on_at", "id"], name="notification_waiting"),
            # Events page.
            models.Index(fields=["-id"], condition=NO_INCIDENT_EVENT, name="notification_alone"),
        ]

    def __str__(self) -> str:
        return self.title


class Channel(models.Model):
    """Address of Apprise that notifications are sent to, with its filters and quiet hours."""

    name = models.CharField(max_length=100, unique=True)
    encrypted_address = models.BinaryField(
        help_text="Address of Apprise, encrypted because it contains a secret."
    )
    service = OutsideCharField(
        max_length=200,
        blank=True,
        default="",
        help_text="Service and host of the address, which may be displayed.",
    )
    enabled = models.BooleanField(default=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        help_text="Only reader of the channel. Links that approve are sent to such channels only.",
    )
    least_severity = models.PositiveSmallIntegerField(
        choices=Incident.Severity.choices, default=Incident.Severity.WARNING
    )
    watches = models.ManyToManyField(
        Watch, blank=True, related_name="channels", help_text="Empty: all watches."
    )
    quiet_from = models.TimeField(
        null=True, blank=True, help_text="Start of the quiet hours, local time."
    )
    quiet_until = models.TimeField(
        null=True,
        blank=True,
        help_text="End of the quiet hours. Only critical notifications are sent in them.",
    )
    digest_at = models.TimeField(
        null=True, blank=True, help_text="Time of the daily digest, local time."
    )

    digest_when_quiet = models.BooleanField(
        default=False, help_text="Send the digest even if it is empty."
    )

    digest_sent_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_sent_at = models.DateTimeField(null=True, blank=True, editable=False)
    failures_in_a_row = models.PositiveIntegerField(default=0, editable=False)
    last_error = OutsideCharField(max_length=500, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Message(models.Model):
    """Message to one channel, sent by the worker and retried after a failure."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        SENT = "sent", "sent"
        FAILED = "failed", "failed"

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="messages")
    notifications = models.ManyToManyField(
        Notification, related_name="messages", help_text="Notifications that it reports."
    )
    title = OutsideCharField(max_length=200)
    body = OutsideTextField()
    severity = models.PositiveSmallIntegerField(choices=Incident.Severity.choices)
    is_summary = models.BooleanField(
        default=False, help_text="Summary that takes more notifications until it is due."
    )

    state = models.CharField(max_length=20, choices=State.choices, default=State.WAITING)
    due_at = models.DateTimeField(default=timezone.now, help_text="Not sent before this time.")
    tries = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True, blank=True)
    error = OutsideCharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # Messages that are due.
            models.Index(fields=["state", "due_at"], name="message_due"),
        ]

    def __str__(self) -> str:
        return f"{self.title} ({self.get_state_display()})"


class TelegramBot(models.Model):
    """Bot whose buttons are asked for, and the worker that asks until a time.

    Telegram answers one program alone. Another worker takes over when the time is up.
    """

    LENGTH = timedelta(seconds=60)

    number = models.BigIntegerField(unique=True, help_text="First part of the token: no secret.")
    next_update = models.BigIntegerField(default=0, help_text="Updates before it were processed.")
    holder = models.CharField(max_length=300, blank=True)
    until = models.DateTimeField(default=timezone.now)
    error = OutsideCharField(max_length=500, blank=True)

    def __str__(self) -> str:
        return f"bot {self.number}"
