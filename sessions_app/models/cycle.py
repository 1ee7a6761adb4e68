from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone

from sessions_app.models.ask_rules import read_ask_rules
from sessions_app.models.policy import Policy, read_tiers
from sessions_app.models.watch import TIER_CHOICES, Watch


def removed_name(name: str) -> str:
    """What a watch is called that is not there any more."""
    return f"{name} (removed)" if name else "a removed watch"


class Cycle(models.Model):
    """One run of a watch, from its trigger to its outcome.

    It carries a copy of what the watch said when it began, so that the record stays true after
    the watch is edited or removed. A drill is a cycle without a watch.
    """

    class Trigger(models.TextChoices):
        SCHEDULE = "schedule", "schedule"
        MANUAL = "manual", "manual"
        VERIFICATION = "verification", "verification of a fix"

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        FINISHED = "finished", "finished"

    class Outcome(models.TextChoices):
        HEALTHY = "healthy", "healthy"
        FIXED = "fixed", "fixed"
        NEEDS_PERSON = "needs_person", "needs a person"
        COULD_NOT_RUN = "could_not_run", "could not run"

    ACTIVE_STATES = (State.QUEUED, State.RUNNING)
    GOOD_OUTCOMES = (Outcome.HEALTHY, Outcome.FIXED)
    ATTENDED_TRIGGERS = (Trigger.MANUAL,)
    """Somebody was there who meant it. Whoever asked through another one may not approve it."""

    watch = models.ForeignKey(
        Watch, on_delete=models.SET_NULL, null=True, blank=True, related_name="cycles"
    )
    watch_name = models.CharField(
        max_length=100, blank=True, help_text="As the watch was called when the cycle began."
    )
    drill = models.CharField(
        max_length=100, blank=True, help_text="The scenario, when this was a drill."
    )
    trigger = models.CharField(max_length=20, choices=Trigger.choices)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    prompt = models.TextField(blank=True, help_text="What was asked for besides the usual round.")
    workdir = models.CharField("working directory", max_length=1000)
    instructions = models.TextField(blank=True)
    first_tier = models.PositiveSmallIntegerField(default=1, choices=TIER_CHOICES)
    max_tier = models.PositiveSmallIntegerField(default=3, choices=TIER_CHOICES)
    dry_run = models.BooleanField(default=False)
    approval = models.CharField("tiers that need approval", max_length=20, blank=True)
    budget_usd = models.DecimalField(
        "dollars of the chain",
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="Its runs together; CLAUDEOPS_BUDGET_CHAIN counts as well, except in a drill.",
    )
    ask = models.CharField("commands that need approval", max_length=1000, blank=True)
    force_fresh = models.BooleanField(
        default=False, help_text="Higher tiers start a conversation of their own, by handoff."
    )
    ephemeral = models.BooleanField(
        "not kept",
        default=False,
        help_text="Its conversations are neither saved nor archived, and none can be resumed.",
    )

    state = models.CharField(max_length=20, choices=State.choices, default=State.QUEUED)
    outcome = models.CharField(max_length=20, choices=Outcome.choices, blank=True)
    outcome_reason = models.TextField(blank=True)
    stopped_by = models.CharField(
        max_length=200, blank=True, help_text="Who stopped or cancelled it on purpose."
    )
    created_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["watch"],
                condition=Q(state__in=["queued", "running"]),
                name="one_active_cycle_per_watch",
            ),
        ]
        indexes = [
            # What is under way, and the admin's list by state.
            models.Index(fields=["state", "-id"], name="cycle_state"),
            # The last rounds of a watch.
            models.Index(fields=["watch", "-id"], name="cycle_watch"),
            # The admin's list by one of its filters, newest first.
            models.Index(fields=["outcome", "-id"], name="cycle_outcome"),
            models.Index(fields=["trigger", "-id"], name="cycle_trigger"),
            models.Index(fields=["dry_run", "-id"], name="cycle_dry_run"),
            # Where a day begins and ends among the numbers.
            models.Index(fields=["created_at"], name="cycle_created"),
        ]

    def __str__(self) -> str:
        return f"Cycle {self.pk} of {self.subject}"

    def get_absolute_url(self) -> str:
        return reverse("sessions_app:cycle", args=[self.pk])

    @property
    def subject(self) -> str:
        """What the cycle was about, as people call it."""
        if self.drill:
            return f"drill {self.drill}"
        return self.watch.name if self.watch else removed_name(self.watch_name)

    @property
    def policy(self) -> Policy:
        """How far it may go: by its own copy or by its watch, whichever is stricter."""
        return self._narrowed_by(self.watch)

    @property
    def ask_rules(self) -> tuple[str, ...]:
        """Commands that wait for a person: by its own copy and by its watch."""
        own = read_ask_rules(self.ask)
        return tuple(dict.fromkeys((*own, *read_ask_rules(self.watch.ask if self.watch else ""))))

    def current_policy(self) -> Policy:
        """The same with a fresh look at the watch: somebody may have changed it meanwhile."""
        return self._narrowed_by(Watch.objects.filter(cycles=self).first())

    def _narrowed_by(self, watch: Watch | None) -> Policy:
        own = Policy(
            max_tier=self.max_tier,
            dry_run=self.dry_run,
            approval_tiers=read_tiers(self.approval),
        )
        return own.narrowed_by(watch.policy) if watch else own

    @property
    def is_active(self) -> bool:
        return self.state in self.ACTIVE_STATES

    def begin(self) -> None:
        """The first of its sessions has been taken; later ones find it begun."""
        if self.state == self.State.QUEUED:
            Cycle.objects.filter(pk=self.pk, state=self.State.QUEUED).update(
                state=self.State.RUNNING
            )
            self.state = self.State.RUNNING

    def reopen(self) -> bool:
        """Continue a finished cycle. False: somebody else has reopened it.

        Raises IntegrityError while the watch has another one.
        """
        reopened = Cycle.objects.filter(pk=self.pk, state=self.State.FINISHED).update(
            state=self.State.RUNNING, finished_at=None
        )
        self.refresh_from_db(fields=["state", "finished_at"])
        return bool(reopened)

    def close_again(self) -> None:
        """End what reopen() began; the outcome stands as it was."""
        Cycle.objects.filter(pk=self.pk).update(
            state=self.State.FINISHED, finished_at=timezone.now()
        )
        self.refresh_from_db(fields=["state", "finished_at"])

    def finish(self, outcome: str, reason: str, *, stopped_by: str = "") -> bool:
        """End the cycle once: a second ending would hide the first one's reason."""
        ending = {
            "state": self.State.FINISHED,
            "outcome": outcome,
            "outcome_reason": reason,
            "stopped_by": stopped_by,
            "finished_at": timezone.now(),
        }
        active = Cycle.objects.filter(pk=self.pk, state__in=self.ACTIVE_STATES)
        if not active.update(**ending):
            return False
        for field, value in ending.items():
            setattr(self, field, value)
        return True

    @classmethod
    def active_of(cls, watch: Watch) -> Cycle | None:
        """Looked for among the few that are under way: by the watch, SQLite would go through all
        the rounds that it ever had."""
        under_way = cls.objects.filter(state__in=cls.ACTIVE_STATES)
        return under_way.alias(number=F("watch_id") + 0).filter(number=watch.pk).first()
