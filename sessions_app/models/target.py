from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from sessions_app.models.happening import Happening
from sessions_app.models.incident import Incident
from sessions_app.models.watch import Watch


class Target(models.Model):
    """Where word goes: one address of Apprise, with what it wants to hear and when."""

    name = models.CharField(max_length=100, unique=True)
    sealed_address = models.BinaryField(help_text="Apprise's address, encrypted: it is a secret.")
    service = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="What of the address may be shown: its service and its host.",
    )
    enabled = models.BooleanField(default=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        help_text="Who reads it alone. Only then a link in it may approve something by itself.",
    )
    least_severity = models.PositiveSmallIntegerField(
        choices=Incident.Severity.choices, default=Incident.Severity.WARNING
    )
    watches = models.ManyToManyField(
        Watch, blank=True, related_name="targets", help_text="None chosen: all of them."
    )
    quiet_from = models.TimeField(null=True, blank=True, help_text="Quiet hours, local time …")
    quiet_until = models.TimeField(
        null=True, blank=True, help_text="… in which only what is critical is sent."
    )
    digest_at = models.TimeField(
        null=True, blank=True, help_text="When the daily digest is sent here, local time."
    )

    digest_when_quiet = models.BooleanField(
        default=False, help_text="Send the digest also when there is nothing to tell."
    )

    digest_sent_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_sent_at = models.DateTimeField(null=True, blank=True, editable=False)
    failures_in_a_row = models.PositiveIntegerField(default=0, editable=False)
    last_error = models.CharField(max_length=500, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Message(models.Model):
    """One message to one target: queued with what it tells, sent from the queue, tried again."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        SENT = "sent", "sent"
        FAILED = "failed", "given up"

    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="messages")
    happenings = models.ManyToManyField(
        Happening, related_name="messages", help_text="What it tells: several in a storm."
    )
    title = models.CharField(max_length=200)
    body = models.TextField()
    severity = models.PositiveSmallIntegerField(choices=Incident.Severity.choices)
    is_summary = models.BooleanField(
        default=False, help_text="Tells several things, and takes in more until it is due."
    )

    state = models.CharField(max_length=20, choices=State.choices, default=State.WAITING)
    due_at = models.DateTimeField(default=timezone.now, help_text="Not sent before.")
    tries = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # What is due.
            models.Index(fields=["state", "due_at"], name="message_due"),
        ]

    def __str__(self) -> str:
        return f"{self.title} ({self.get_state_display()})"
