from __future__ import annotations

from django.db import models
from django.utils import timezone

from sessions_app.models.session import Session


class SessionEvent(models.Model):
    """One thing that happened in a session, in order: a line of the stream, or a word of ours."""

    class Source(models.TextChoices):
        STREAM = "stream", "stream"
        """A line of the CLI's stdout that is a JSON object."""
        NOISE = "noise", "noise"
        """A line of the CLI's stdout that is not."""
        STDERR = "stderr", "stderr"
        SUPERVISOR = "supervisor", "supervisor"
        """What Claude Ops itself did or decided."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="events")
    sequence = models.PositiveIntegerField()
    source = models.CharField(max_length=20, choices=Source.choices)
    kind = models.CharField(max_length=100, blank=True)
    payload = models.JSONField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["session", "sequence"]
        constraints = [
            # Also the index behind the live view: events of a session after a given number.
            models.UniqueConstraint(fields=["session", "sequence"], name="event_sequence"),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.kind} #{self.sequence}"
