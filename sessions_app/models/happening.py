from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from sessions_app.models.approval import Approval
from sessions_app.models.incident import Incident
from sessions_app.models.watch import Watch

NOT_IN_A_STORY = Q(incident=None) | Q(approval__isnull=False)
"""What no incident's own story tells."""


class Happening(models.Model):
    """Something that people may want to be told. Written where it happens, in that transaction;
    who hears of it, where and when is decided afterwards (`escalation/word`)."""

    class Kind(models.TextChoices):
        INCIDENT_OPENED = "incident_opened", "an incident opened"
        INCIDENT_CHANGED_HANDS = "incident_changed_hands", "an incident changed hands"
        INCIDENT_RESOLVED = "incident_resolved", "an incident was resolved"
        FIX_VERIFIED = "fix_verified", "a fix was verified"
        FIX_DID_NOT_HOLD = "fix_did_not_hold", "a fix did not hold"
        APPROVAL_WANTED = "approval_wanted", "an approval is wanted"
        BUDGET = "budget", "a budget is nearly or wholly spent"
        COOLDOWN = "cooldown", "a cooldown stopped a remedy"
        WALLS_WORSE = "walls_worse", "the walls got worse"
        WORKER_SILENT = "worker_silent", "no worker is seen"

    kind = models.CharField(max_length=30, choices=Kind.choices)
    at = models.DateTimeField(default=timezone.now)
    severity = models.PositiveSmallIntegerField(choices=Incident.Severity.choices)
    watch = models.ForeignKey(Watch, on_delete=models.SET_NULL, null=True, blank=True)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, null=True, blank=True)
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, null=True, blank=True)
    title = models.CharField(max_length=200)
    text = models.TextField(blank=True)
    path = models.CharField(max_length=300, blank=True, help_text="The page that shows it.")
    passed_on_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was decided who is told."
    )

    class Meta:
        ordering = ["id"]
        indexes = [
            # What nobody has looked at yet.
            models.Index(fields=["passed_on_at", "id"], name="happening_waiting"),
            # The page of events.
            models.Index(fields=["-id"], condition=NOT_IN_A_STORY, name="happening_alone"),
        ]

    def __str__(self) -> str:
        return self.title
