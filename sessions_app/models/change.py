from __future__ import annotations

from django.db import models
from django.utils import timezone

from sessions_app.models.session import Session
from sessions_app.models.watch import Watch


class Change(models.Model):
    """A command with an effect that the gate let run, or an edit of a file that the CLI did: from
    the record, not from a report.

    Cooldowns are counted from these, whatever the agent says it did.
    """

    class Kind(models.TextChoices):
        RESTART = "restart", "restart"
        REDEPLOY = "redeploy", "redeployment"
        OTHER = "other", "other change"
        EDIT = "edit", "edit of a file"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="changes")
    watch = models.ForeignKey(
        Watch, on_delete=models.SET_NULL, null=True, blank=True, related_name="changes"
    )
    call = models.CharField(
        max_length=100, help_text="The gate's name for this one call; of an edit, the CLI's."
    )
    number = models.PositiveSmallIntegerField(default=0, help_text="Its place in the command.")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    service = models.CharField(
        max_length=200, blank=True, help_text="What it was done to, in one spelling."
    )
    action = models.CharField(max_length=300, help_text="As the gate understood it.")
    command = models.TextField(help_text="As it was written, masked.")
    path = models.CharField(max_length=1000, blank=True, help_text="The file that was edited.")
    diff = models.TextField(blank=True, help_text="Of an edit, masked; a long one is cut.")
    at = models.DateTimeField(default=timezone.now)
    exit_code = models.IntegerField(null=True, blank=True)
    is_cleared = models.BooleanField(
        default=False, help_text="Two healthy rounds came after it: it counts for no cooldown."
    )

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["session", "call", "number"], name="change_written_once"
            ),
        ]
        indexes = [
            # How often a service was restarted lately.
            models.Index(fields=["watch", "at"], name="change_cooldown"),
            # The list of changes by one of its filters, newest first.
            models.Index(fields=["watch", "-id"], name="change_watch"),
            models.Index(fields=["service", "-id"], name="change_service"),
            models.Index(fields=["kind", "-id"], name="change_kind"),
            # Where a day begins and ends among the numbers; the digest's day.
            models.Index(fields=["at"], name="change_at"),
        ]

    def __str__(self) -> str:
        return f"{self.action} (session {self.session_id})"

    @property
    def is_edit(self) -> bool:
        return self.kind == self.Kind.EDIT

    @property
    def has_failed(self) -> bool:
        return self.exit_code not in (None, 0)
