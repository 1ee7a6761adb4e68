from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from sessions_app.models.session import Session


class Approval(models.Model):
    """A question to a person: may this tier start, or this one command run?

    It is answered once, by a conditional update (`escalation/approvals`). A command's outlives the
    call that asked, because the CLI may give up waiting: asked again, it finds its answer.
    """

    class Kind(models.TextChoices):
        TIER = "tier", "a tier"
        COMMAND = "command", "a command"

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        APPROVED = "approved", "approved"
        REJECTED = "rejected", "rejected"
        EXPIRED = "expired", "expired"
        WITHDRAWN = "withdrawn", "withdrawn"

    LONGEST_NOTE = 1_000

    kind = models.CharField(max_length=20, choices=Kind.choices)
    session = models.ForeignKey(
        Session,
        on_delete=models.CASCADE,
        related_name="approvals",
        help_text="The tier that waits, or the run whose command waits.",
    )
    why = models.CharField(max_length=300, help_text="Why a person is asked.")
    command = models.TextField(blank=True)
    actions = models.JSONField(default=list, blank=True, help_text="What it was understood to do.")
    doors = models.JSONField(default=list, blank=True, help_text="What it would be let through.")
    cwd = models.CharField("working directory", max_length=1000, blank=True)
    fingerprint = models.CharField(
        max_length=64,
        blank=True,
        help_text="Of the command as it was judged: what is shown of it is masked.",
    )
    plan = models.TextField(blank=True, help_text="What the run says it is about to do, and why.")
    plan_run = models.ForeignKey(
        Session,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="The dry fork that was asked for its plan.",
    )

    state = models.CharField(max_length=20, choices=State.choices, default=State.WAITING)
    asked_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    note = models.TextField(blank=True, help_text="For the record, and for the model.")
    used_at = models.DateTimeField(
        null=True, blank=True, help_text="When what was approved began: it does so once."
    )

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["session"],
                condition=Q(kind="tier", state="waiting"),
                name="one_waiting_approval_per_tier",
            ),
        ]
        indexes = [
            # What waits for a person, and what is to expire.
            models.Index(fields=["state", "expires_at"], name="approval_waiting"),
            # Where a day begins and ends among the numbers.
            models.Index(fields=["asked_at"], name="approval_asked"),
            # The same command asked again.
            models.Index(fields=["fingerprint"], name="approval_asked_again"),
        ]

    def __str__(self) -> str:
        what = self.command if self.kind == self.Kind.COMMAND else f"Tier {self.session.tier}"
        return f"Approval {self.pk} ({self.get_state_display()}): {what}"

    def get_absolute_url(self) -> str:
        return reverse("sessions_app:approval", args=[self.pk])

    @property
    def is_waiting(self) -> bool:
        return self.state == self.State.WAITING

    @property
    def is_overdue(self) -> bool:
        """Too late to be answered, whether somebody has noticed or not."""
        return self.is_waiting and self.expires_at <= timezone.now()

    @property
    def subject(self) -> str:
        """What is asked for, as people call it."""
        return "a command" if self.kind == self.Kind.COMMAND else f"Tier {self.session.tier}"
