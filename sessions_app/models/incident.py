from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from sessions_app.models.cycle import Cycle, removed_name
from sessions_app.models.session import Session
from sessions_app.models.watch import Watch


class Incident(models.Model):
    """One problem, however many rounds see it: from the first sight of it until it is resolved.

    There is one for each cause that is not resolved, guaranteed by the database. Its state is
    changed in one place (`escalation/incidents`), and every change leaves an `IncidentEvent`.
    """

    class Kind(models.TextChoices):
        PROBLEM = "problem", "needs a person"
        COULD_NOT_RUN = "could_not_run", "could not run"

    class Severity(models.IntegerChoices):
        """Ordered, so that the worst can be asked for."""

        NOTICE = 1, "notice"
        WARNING = 2, "warning"
        CRITICAL = 3, "critical"

    class State(models.TextChoices):
        OPEN = "open", "open"
        ACKNOWLEDGED = "acknowledged", "acknowledged"
        WORKING = "working", "being worked on"
        VERIFYING = "verifying", "fixed, being verified"
        RESOLVED = "resolved", "resolved"

    class ResolvedBy(models.TextChoices):
        AGENT = "agent", "fixed by the agent and verified"
        PERSON = "person", "resolved by a person"
        ITSELF = "itself", "recovered by itself"

    UNRESOLVED_STATES = (State.OPEN, State.ACKNOWLEDGED, State.WORKING, State.VERIFYING)

    watch = models.ForeignKey(
        Watch, on_delete=models.SET_NULL, null=True, blank=True, related_name="incidents"
    )
    watch_name = models.CharField(
        max_length=100, blank=True, help_text="As the watch was called when it was first seen."
    )
    drill = models.CharField(
        max_length=100, blank=True, help_text="The scenario, when this was a drill."
    )
    kind = models.CharField(max_length=20, choices=Kind.choices)
    scope = models.CharField(
        max_length=120, help_text="Whose it is: `watch:3`, `drill:three-tiers` or `installation`."
    )
    cause = models.CharField(
        max_length=200, help_text="The service in one spelling, or why nothing could run, by name."
    )
    title = models.CharField(max_length=200, help_text="What is wrong, in one line.")
    detail = models.TextField(blank=True, help_text="As the last round that saw it put it.")
    severity = models.PositiveSmallIntegerField(choices=Severity.choices, default=Severity.WARNING)

    state = models.CharField(max_length=20, choices=State.choices, default=State.OPEN)
    first_seen_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now)
    times_seen = models.PositiveIntegerField(default=1)
    healthy_rounds = models.PositiveSmallIntegerField(
        default=0, help_text="Rounds in a row that found it healthy since it was last seen."
    )
    times_reopened = models.PositiveIntegerField(default=0)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="Who has it.",
    )
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    snoozed_until = models.DateTimeField(null=True, blank=True)
    verify_at = models.DateTimeField(
        null=True, blank=True, help_text="When a fresh round looks whether the fix holds."
    )
    verifications_tried = models.PositiveSmallIntegerField(
        default=0, help_text="Rounds that were to look whether the fix holds and could not say."
    )
    remedy = models.CharField(
        max_length=300, blank=True, help_text="What was last done about it, as it was reported."
    )
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_as = models.CharField(max_length=20, choices=ResolvedBy.choices, blank=True)
    resolved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
    )
    last_cycle = models.ForeignKey(
        Cycle,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="The last that saw it, worked on it or looked whether its fix holds.",
    )
    cycles = models.ManyToManyField(
        Cycle, related_name="incidents", blank=True, help_text="All that had to do with it."
    )

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["scope", "kind", "cause"],
                condition=~Q(state="resolved"),
                name="one_unresolved_incident_per_cause",
            ),
        ]
        indexes = [
            # The inbox, and what is due to be verified.
            models.Index(fields=["state", "-severity", "-id"], name="incident_inbox"),
            # What was wrong with a watch, newest first.
            models.Index(fields=["watch", "-id"], name="incident_watch"),
            # Where a day begins and ends among the numbers.
            models.Index(fields=["first_seen_at"], name="incident_first_seen"),
            # What was resolved in a period, for what a fixed one costs.
            models.Index(fields=["resolved_as", "drill", "resolved_at"], name="incident_resolved"),
            # Which fixes are to be looked at now.
            models.Index(fields=["verify_at"], name="incident_due"),
        ]

    def __str__(self) -> str:
        return f"Incident {self.pk}: {self.title}"

    def get_absolute_url(self) -> str:
        return reverse("sessions_app:incident", args=[self.pk])

    @property
    def subject(self) -> str:
        """Whose problem it is, as people call it."""
        if self.drill:
            return f"drill {self.drill}"
        if self.scope == "installation":
            return "this installation"
        return self.watch.name if self.watch else removed_name(self.watch_name)

    @property
    def is_unresolved(self) -> bool:
        return self.state in self.UNRESOLVED_STATES

    @property
    def seems_recovered(self) -> bool:
        """The last round found it healthy, and one more is awaited."""
        return self.is_unresolved and self.healthy_rounds > 0

    @property
    def asks_for_person(self) -> bool:
        """Nobody has it, or not any more, and it does not look as if it went away by itself."""
        let_go = self.has_woken or self.owner_is_gone
        waits = self.state == self.State.OPEN or (self.state == self.State.ACKNOWLEDGED and let_go)
        return waits and not (self.is_snoozed or self.seems_recovered)

    @property
    def has_woken(self) -> bool:
        """It was snoozed, and the time is over."""
        return self.snoozed_until is not None and not self.is_snoozed

    @property
    def owner_is_gone(self) -> bool:
        """Whoever has it cannot log in any more."""
        return self.owner is not None and not self.owner.is_active

    @property
    def is_snoozed(self) -> bool:
        return self.snoozed_until is not None and self.snoozed_until > timezone.now()


class IncidentEvent(models.Model):
    """One step in an incident's story. Rows are only ever added."""

    class Kind(models.TextChoices):
        OPENED = "opened", "opened"
        SEEN = "seen", "seen again"
        WORSE = "worse", "got worse"
        RECOVERED = "recovered", "seems recovered"
        WORKED_ON = "worked_on", "worked on"
        FIXED = "fixed", "fixed, to be verified"
        VERIFIED = "verified", "fixed and verified"
        DID_NOT_HOLD = "did_not_hold", "the fix did not hold"
        NOT_VERIFIED = "not_verified", "could not be verified"
        ACKNOWLEDGED = "acknowledged", "acknowledged"
        SNOOZED = "snoozed", "snoozed"
        HANDED_OVER = "handed_over", "changed hands"
        NOTED = "noted", "note"
        REOPENED = "reopened", "opened again"
        RESOLVED = "resolved", "resolved"

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    at = models.DateTimeField(default=timezone.now)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    text = models.TextField(blank=True)
    cycle = models.ForeignKey(
        Cycle, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    session = models.ForeignKey(
        Session, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ["id"]
        indexes = [
            # The page of events: that a problem is still there is no event.
            models.Index(fields=["-id"], condition=~Q(kind="seen"), name="incidentevent_told"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.text}"
