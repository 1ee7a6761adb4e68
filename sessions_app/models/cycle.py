"""Cycles: one pass over a watch, from its trigger to its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone

from sessions_app.models.autonomy import Policy, read_tiers
from sessions_app.models.fields import OutsideCharField, OutsideJSONField, OutsideTextField
from sessions_app.models.telemetry import MetricTotal, TraceExport
from sessions_app.models.watch import Watch, read_ask_rules
from sessions_app.tiers import LOWEST_TIER, highest_tier, tier_choices


def removed_name(name: str) -> str:
    """Return the name to display for a watch that was removed."""
    return f"{name} (removed)" if name else "a removed watch"


MOST_FACTS = 100
"""Facts that one cycle keeps; an incident event records each further one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """Statement of a probe or an alert about a service. A cycle stores facts as its evidence.

    Texts come from outside: `escalation/supervisor/cycles.py` redacts them before it stores them.
    """

    source: str
    """Trigger of the cycle that it starts: `probe` or `alert`."""
    name: str
    """Name of the probe or of the alert."""
    service: str
    is_failing: bool = True
    severity: int = 3
    """Severity of the incident, as in `Incident.Severity`."""
    at: datetime
    """When it was noticed, by our own clock."""
    since: datetime | None = None
    """When the service began to fail, as far as known."""
    last_good: datetime | None = None
    output: str = ""
    proves: bool = False
    """True if it is enough to resolve an incident or to verify a fix: all probes are up."""

    def stored(self) -> dict[str, Any]:
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Fact:
        moments = {
            name: datetime.fromisoformat(value) if (value := stored.get(name)) else None
            for name in ("at", "since", "last_good")
        }
        known = {field.name for field in fields(cls)}
        return cls(**{name: stored[name] for name in known & stored.keys()} | moments)

    @property
    def words(self) -> str:
        """The fact in one line, without its output."""
        state = "fails" if self.is_failing else "has recovered"
        when = f" since {_moment(self.since)}" if self.since else f" at {_moment(self.at)}"
        good = f", last good {_moment(self.last_good)}" if self.last_good else ""
        return f"{self.source} {self.name} of {self.service} {state}{when}{good}"


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class Cycle(models.Model):
    """One pass over a watch, from its trigger to its outcome.

    The settings of the watch are copied when the cycle starts, so that the history stays correct
    after the watch is edited or removed. A drill is a cycle without a watch.
    """

    class Trigger(models.TextChoices):
        SCHEDULE = "schedule", "schedule"
        MANUAL = "manual", "manual"
        VERIFICATION = "verification", "verification of a fix"
        PROBE = "probe", "failing probe"
        ALERT = "alert", "alert"

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
    LOWERED_FIELDS = ("max_tier", "dry_run", "approval", "budget_usd", "lowered")
    ATTENDED_TRIGGERS = (Trigger.MANUAL,)
    """Triggers used by a person. Who requested a cycle by another one may not approve it."""

    watch = models.ForeignKey(
        Watch, on_delete=models.SET_NULL, null=True, blank=True, related_name="cycles"
    )
    watch_name = models.CharField(
        max_length=100, blank=True, help_text="Name of the watch when the cycle started."
    )
    drill = models.CharField(
        max_length=100, blank=True, help_text="Scenario of a drill; empty otherwise."
    )
    trigger = models.CharField(max_length=20, choices=Trigger.choices)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    prompt = OutsideTextField(
        blank=True, help_text="Additional request of the person who started the cycle."
    )
    evidence = OutsideJSONField(
        default=list,
        blank=True,
        help_text="Facts of probes and alerts that started the cycle or came while it ran.",
    )
    workdir = models.CharField("working directory", max_length=1000)
    instructions = OutsideTextField(blank=True)
    first_tier = models.PositiveSmallIntegerField(default=LOWEST_TIER, choices=tier_choices)
    max_tier = models.PositiveSmallIntegerField(default=highest_tier, choices=tier_choices)
    dry_run = models.BooleanField(default=False)
    approval = models.CharField("tiers that need approval", max_length=20, blank=True)
    budget_usd = models.DecimalField(
        "budget in US dollars",
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="For the whole chain. CLAUDEOPS_BUDGET_CHAIN applies too, except to drills.",
    )
    ask = models.CharField("commands that need approval", max_length=1000, blank=True)
    lowered = OutsideJSONField(
        null=True,
        blank=True,
        help_text="What claude-ops.toml in the directory lowered; empty until it was read.",
    )
    force_fresh = models.BooleanField(
        default=False,
        help_text="Higher tiers start a new conversation by handoff instead of resume.",
    )
    ephemeral = models.BooleanField(
        "ephemeral",
        default=False,
        help_text="Conversations are neither saved nor archived, and cannot be resumed.",
    )

    state = models.CharField(max_length=20, choices=State.choices, default=State.QUEUED)
    outcome = models.CharField(max_length=20, choices=Outcome.choices, blank=True)
    outcome_reason = OutsideTextField(blank=True)
    stopped_by = OutsideCharField(
        max_length=200, blank=True, help_text="Person who stopped or cancelled the cycle."
    )
    created_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)
    ping_due_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="When to call CLAUDEOPS_PING_URL; empty if done or not needed.",
    )

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
            # Active cycles; admin by state.
            models.Index(fields=["state", "-id"], name="cycle_state"),
            # Latest cycles of a watch.
            models.Index(fields=["watch", "-id"], name="cycle_watch"),
            # Filters of the cycle list and of the admin, newest first.
            models.Index(fields=["outcome", "-id"], name="cycle_outcome"),
            models.Index(fields=["trigger", "-id"], name="cycle_trigger"),
            models.Index(fields=["dry_run", "-id"], name="cycle_dry_run"),
            # Date filter: the first id of a day.
            models.Index(fields=["created_at"], name="cycle_created"),
            # The worker's query, every few seconds, for pings that are due.
            models.Index(
                fields=["ping_due_at"],
                condition=Q(ping_due_at__isnull=False),
                name="cycle_ping_due",
            ),
        ]

    def __str__(self) -> str:
        return f"Cycle {self.pk} of {self.subject}"

    def get_absolute_url(self) -> str:
        return reverse("web:cycle", args=[self.pk])

    @property
    def subject(self) -> str:
        """Name of the watch or of the drill, for people."""
        if self.drill:
            return f"drill {self.drill}"
        return self.watch.name if self.watch else removed_name(self.watch_name)

    @property
    def facts(self) -> list[Fact]:
        return [Fact.read(stored) for stored in self.evidence]

    def add_facts(self, facts: Sequence[Fact]) -> None:
        """Append facts to the evidence. The caller prevents concurrent writes."""
        self.refresh_from_db(fields=["evidence"])
        added = [fact.stored() for fact in facts][: max(0, MOST_FACTS - len(self.evidence))]
        if added:
            self.evidence = [*self.evidence, *added]
            self.save(update_fields=["evidence"])

    @property
    def policy(self) -> Policy:
        """The stricter of the cycle's own policy and that of its watch."""
        return self._narrowed_by(self.watch)

    @property
    def ask_rules(self) -> tuple[str, ...]:
        """Rules for commands that need approval: of the cycle, its watch and its directory."""
        own = (*read_ask_rules(self.ask), *(self.lowered or {}).get("ask", ()))
        return tuple(dict.fromkeys((*own, *read_ask_rules(self.watch.ask if self.watch else ""))))

    @property
    def grants(self) -> str:
        """Options of the watch, and those that the file in its directory revokes."""
        revoked = (self.lowered or {}).get("grants", ())
        return " ".join((self.watch.grants if self.watch else "", *revoked)).strip()

    def current_policy(self) -> Policy:
        """Return the policy with the watch read from the database again."""
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

    @property
    def result(self) -> str:
        """Outcome of a finished cycle; state of an active one, also if it was reopened."""
        return self.state if self.is_active or not self.outcome else self.outcome

    @property
    def result_text(self) -> str:
        is_state = self.is_active or not self.outcome
        return str(self.get_state_display() if is_state else self.get_outcome_display())

    def begin(self) -> None:
        """Mark the cycle as running when its first session is claimed."""
        if self.state == self.State.QUEUED:
            Cycle.objects.filter(pk=self.pk, state=self.State.QUEUED).update(
                state=self.State.RUNNING
            )
            self.state = self.State.RUNNING

    def reopen(self) -> bool:
        """Continue a finished cycle. Return False if it is not finished.

        Raise IntegrityError if the watch has another active cycle.
        """
        reopened = Cycle.objects.filter(pk=self.pk, state=self.State.FINISHED).update(
            state=self.State.RUNNING, finished_at=None
        )
        # The watch may have been removed.
        self.refresh_from_db(fields=["state", "finished_at", "watch"])
        return bool(reopened)

    def close_again(self) -> None:
        """Finish a reopened cycle again with its previous outcome."""
        with transaction.atomic():
            Cycle.objects.filter(pk=self.pk).update(
                state=self.State.FINISHED, finished_at=timezone.now()
            )
            TraceExport.ask(self.pk)
        self.refresh_from_db(fields=["state", "finished_at"])

    def finish(self, outcome: str, reason: str, *, stopped_by: str = "") -> bool:
        """End an active cycle. Return False, and keep the first reason, if it has ended."""
        ending = {
            "state": self.State.FINISHED,
            "outcome": outcome,
            "outcome_reason": reason,
            "stopped_by": stopped_by,
            "finished_at": timezone.now(),
        }
        # A finished cycle that was reopened has an outcome, and is counted already.
        is_first = not self.outcome and not self.drill
        active = Cycle.objects.filter(pk=self.pk, state__in=self.ACTIVE_STATES)
        with transaction.atomic():
            if not active.update(**ending):
                return False
            for field, value in ending.items():
                setattr(self, field, value)
            if is_first:
                self._count()
            TraceExport.ask(self.pk)
        return True

    def _count(self) -> None:
        assert self.finished_at is not None, "only a finished cycle is counted"
        MetricTotal.add(
            MetricTotal.Name.CYCLES,
            self.watch_id or 0,
            self.watch_name,
            self.outcome,
            seconds=(self.finished_at - self.created_at).total_seconds(),
            at=self.finished_at,
        )

    @classmethod
    def active_of(cls, watch: Watch) -> Cycle | None:
        """Return the active cycle of a watch.

        The expression makes SQLite use the index on `state`; by the watch, it would read all
        cycles of the watch.
        """
        under_way = cls.objects.filter(state__in=cls.ACTIVE_STATES)
        return under_way.alias(number=F("watch_id") + 0).filter(number=watch.pk).first()
