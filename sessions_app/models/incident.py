"""Incidents, their events, and the state of each service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import models
from django.db.models import OuterRef, Q, Subquery
from django.urls import reverse
from django.utils import timezone

from sessions_app.models.cycle import Cycle, removed_name
from sessions_app.models.fields import OutsideCharField, OutsideJSONField, OutsideTextField
from sessions_app.models.session import Session
from sessions_app.models.watch import Watch

UNVERIFIED_AFTER = timedelta(minutes=15)
"""Delay after which a verification that has not started needs a person."""


class IncidentQuerySet(models.QuerySet["Incident"]):
    def waiting_for_person(self, now: datetime | None = None) -> IncidentQuerySet:
        """Select what `Incident.asks_for_person` selects, without drills.

        The pages, the title of the tab, `claudeops status` and the digest count these.
        """
        now = now or timezone.now()
        awake = Q(snoozed_until=None) | Q(snoozed_until__lte=now)
        is_nobodys = Q(owner=None) | Q(snoozed_until__lte=now) | Q(owner__is_active=False)
        unverified = Q(state="verifying", verify_at__lte=now - UNVERIFIED_AFTER)
        waits = Q(state="open") | ((Q(state="acknowledged") | unverified) & is_nobodys)
        return self.filter(waits & awake & Q(healthy_cycles=0), drill="")


class Incident(models.Model):
    """One problem, from the cycle that finds it until it is resolved.

    A constraint allows one unresolved incident for each cause. `escalation/incidents` changes the
    state, and adds an `IncidentEvent` for every change.
    """

    class Kind(models.TextChoices):
        PROBLEM = "problem", "needs a person"
        COULD_NOT_RUN = "could_not_run", "could not run"

    class Severity(models.IntegerChoices):
        """Severities in order, so that a query can sort by them."""

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
        REMEDY = "remedy", "fixed by a remedy, as its probe shows"
        PERSON = "person", "resolved by a person"
        ITSELF = "itself", "recovered without a fix"

    class FoundBy(models.TextChoices):
        PROBE = "probe", "a probe"
        ALERT = "alert", "an alert"
        MODEL = "model", "a model"
        PERSON = "person", "a person"

    UNRESOLVED_STATES = (State.OPEN, State.ACKNOWLEDGED, State.WORKING, State.VERIFYING)

    watch = models.ForeignKey(
        Watch, on_delete=models.SET_NULL, null=True, blank=True, related_name="incidents"
    )
    watch_name = models.CharField(
        max_length=100, blank=True, help_text="Name of the watch when the incident was opened."
    )
    drill = models.CharField(
        max_length=100, blank=True, help_text="Scenario of a drill; empty otherwise."
    )
    kind = models.CharField(max_length=20, choices=Kind.choices)
    scope = models.CharField(
        max_length=120, help_text="Like `watch:3`, `drill:three-tiers` or `installation`."
    )
    cause = models.CharField(
        max_length=200,
        help_text="Normalised name of the service, or code of the reason why no session ran.",
    )
    title = OutsideCharField(max_length=200, help_text="Problem in one line.")
    detail = OutsideTextField(blank=True, help_text="Detail from the last cycle that found it.")
    severity = models.PositiveSmallIntegerField(choices=Severity.choices, default=Severity.WARNING)

    state = models.CharField(max_length=20, choices=State.choices, default=State.OPEN)
    found_by = models.CharField(max_length=10, choices=FoundBy.choices, default=FoundBy.MODEL)
    began_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the service began to fail, if a probe or an alert knows; it was noticed "
        "at first_seen_at.",
    )
    first_seen_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now)
    times_seen = models.PositiveIntegerField(default=1)
    healthy_cycles = models.PositiveSmallIntegerField(
        default=0, help_text="Consecutive cycles that found the service healthy."
    )
    times_reopened = models.PositiveIntegerField(default=0)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="Person who takes care of it.",
    )
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    snoozed_until = models.DateTimeField(null=True, blank=True)
    verify_at = models.DateTimeField(
        null=True, blank=True, help_text="When a new cycle verifies the fix."
    )
    verifications_tried = models.PositiveSmallIntegerField(
        default=0, help_text="Verifications without a result."
    )
    remedy = OutsideCharField(max_length=300, blank=True, help_text="Last fix, as it was reported.")
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
        help_text="Last cycle that found, fixed or verified it.",
    )
    cycles = models.ManyToManyField(
        Cycle,
        related_name="incidents",
        blank=True,
        help_text="All cycles that found, fixed or verified it.",
    )

    objects = IncidentQuerySet.as_manager()

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
            # Inbox: unresolved incidents, the most severe first.
            models.Index(fields=["state", "-severity", "-id"], name="incident_inbox"),
            # Incidents of a watch, newest first.
            models.Index(fields=["watch", "-id"], name="incident_watch"),
            # Date filter: the first id of a day.
            models.Index(fields=["first_seen_at"], name="incident_first_seen"),
            # Incidents that were resolved in a period.
            models.Index(fields=["resolved_as", "drill", "resolved_at"], name="incident_resolved"),
            # Fixes whose verification is due.
            models.Index(fields=["verify_at"], name="incident_due"),
        ]

    def __str__(self) -> str:
        return f"Incident {self.pk}: {self.title}"

    def get_absolute_url(self) -> str:
        return reverse("web:incident", args=[self.pk])

    @property
    def subject(self) -> str:
        """Name of the watch, drill or installation, for people."""
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
        """True if the last cycle found the service healthy and one more has to confirm it."""
        return self.is_unresolved and self.healthy_cycles > 0

    @property
    def asks_for_person(self) -> bool:
        """True if no active account owns the incident, and it is not snoozed or recovering.

        `IncidentQuerySet.waiting_for_person` is the same condition for queries.
        """
        is_nobodys = self.owner_id is None or self.has_woken or self.owner_is_gone
        is_left = self.state == self.State.ACKNOWLEDGED or self.is_unverified
        waits = self.state == self.State.OPEN or (is_left and is_nobodys)
        return waits and not (self.is_snoozed or self.seems_recovered)

    @property
    def is_unverified(self) -> bool:
        """True if the verification of its fix is overdue: no cycle could start."""
        if self.state != self.State.VERIFYING or self.verify_at is None:
            return False
        return self.verify_at <= timezone.now() - UNVERIFIED_AFTER

    @property
    def has_woken(self) -> bool:
        """True if it was snoozed and the time is over."""
        return self.snoozed_until is not None and not self.is_snoozed

    @property
    def owner_is_gone(self) -> bool:
        """True if the account of the owner is disabled."""
        return self.owner is not None and not self.owner.is_active

    @property
    def is_snoozed(self) -> bool:
        return self.snoozed_until is not None and self.snoozed_until > timezone.now()


class IncidentEvent(models.Model):
    """Entry in the history of an incident. Rows are never changed."""

    class Kind(models.TextChoices):
        OPENED = "opened", "opened"
        SEEN = "seen", "seen again"
        WORSE = "worse", "got worse"
        RECOVERED = "recovered", "seems recovered"
        WORKED_ON = "worked_on", "worked on"
        APPROVED = "approved", "approved"
        REJECTED = "rejected", "rejected"
        FIXED = "fixed", "fixed, to be verified"
        VERIFIED = "verified", "fixed and verified"
        DID_NOT_HOLD = "did_not_hold", "the fix failed"
        NOT_VERIFIED = "not_verified", "could not be verified"
        CONTRADICTED = "contradicted", "reported healthy while a probe fails"
        ACKNOWLEDGED = "acknowledged", "acknowledged"
        SNOOZED = "snoozed", "snoozed"
        HANDED_OVER = "handed_over", "assigned"
        NOTED = "noted", "note"
        REOPENED = "reopened", "reopened"
        RESOLVED = "resolved", "resolved"

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    at = models.DateTimeField(default=timezone.now)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    text = OutsideTextField(blank=True)
    cycle = models.ForeignKey(
        Cycle, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    session = models.ForeignKey(
        Session, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ["id"]
        indexes = [
            # Events page, which leaves out `seen`.
            models.Index(fields=["-id"], condition=~Q(kind="seen"), name="incidentevent_told"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.text}"


KEPT = 40


class Mark(NamedTuple):
    """Status of a service in one cycle. Marks are sorted by the cycle's id."""

    cycle: int
    status: str
    at: int
    """Start of the cycle, in seconds since the epoch."""


def read_marks(stored: Iterable[Sequence[object]]) -> list[Mark]:
    return [Mark(int(str(cycle)), str(status), int(str(at))) for cycle, status, at in stored]


def with_mark(marks: Iterable[Mark], new: Mark) -> list[Mark]:
    """Add the mark of a cycle, or replace it if the cycle ends a second time."""
    return sorted([*(mark for mark in marks if mark.cycle != new.cycle), new])[-KEPT:]


def since(marks: Sequence[Mark], before: int | None = None) -> int:
    """Return the start of the last status.

    If all kept marks have the same status, the stored start may be earlier than the first mark.
    """
    first = len(marks) - 1
    while first > 0 and marks[first - 1].status == marks[-1].status:
        first -= 1
    known = marks[first].at
    is_older = first == 0 and len(marks) == KEPT and before is not None
    return min(known, before) if is_older and before is not None else known


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportedService:
    """Status of one service in the report of a cycle."""

    name: str
    status: str
    detail: str = ""


NOT_LOOKED_AT = "not looked at"
EXPECTED_FOR = timedelta(days=7)
"""Time for which a service that was reported is expected in the next cycles."""


class ServiceStateQuerySet(models.QuerySet["ServiceState"]):
    def not_looked_at(self, now: datetime | None = None) -> ServiceStateQuerySet:
        """Select services that the last cycle of their watch with a result did not mention.

        What such a cycle says about the watch does not hold for them.
        """
        ended = Cycle.objects.filter(
            watch=OuterRef("watch"), outcome__in=Cycle.GOOD_OUTCOMES, state=Cycle.State.FINISHED
        )
        last = Subquery(ended.order_by("-id").values("pk")[:1])
        lately = (now or timezone.now()) - EXPECTED_FOR
        return self.filter(cycle__lt=last, seen_at__gte=lately)


class ServiceState(models.Model):
    """Current status of a service of a watch, from the last cycle that reported it.

    Updated in the transaction that ends a cycle (`escalation/incidents`), so that pages need not
    read reports. Rows are removed with their watch. `claudeops rollups --check` compares them with
    the reports.
    """

    class Status(models.TextChoices):
        DOWN = "down", "down"
        DEGRADED = "degraded", "degraded"
        UNKNOWN = "unknown", "unknown"
        HEALTHY = "healthy", "healthy"

    WORST_FIRST = (Status.DOWN, Status.DEGRADED, Status.UNKNOWN, Status.HEALTHY)
    LONGEST_NAME, LONGEST_DETAIL = 200, 300
    WRITTEN = ("name", "status", "place", "detail", "since", "seen_at", "cycle", "marks")

    watch = models.ForeignKey(Watch, on_delete=models.CASCADE, related_name="services")
    service = models.CharField(max_length=200, help_text="Normalised name.")
    name = OutsideCharField(max_length=200, help_text="Name as in the last report.")
    status = models.CharField(max_length=20, choices=Status.choices)
    place = models.PositiveSmallIntegerField(help_text="Rank of the status; 0 is the worst.")
    detail = OutsideCharField(max_length=300, blank=True)
    since = models.DateTimeField(help_text="Start of the first cycle with this status.")
    seen_at = models.DateTimeField(help_text="Start of the last cycle that reported it.")
    cycle = models.ForeignKey(
        Cycle, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    marks = OutsideJSONField(
        default=list, help_text="Cycle, status and time of the last 40 cycles that reported it."
    )

    objects = ServiceStateQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["watch", "service"], name="one_state_per_service"),
        ]
        indexes = [
            # Services page, the worst first.
            models.Index(fields=["place", "service", "id"], name="service_worst_first"),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.status}"

    @classmethod
    def enter(cls, cycle: Cycle, said: Mapping[str, ReportedService]) -> None:
        """Store the services of a cycle's reports. The caller prevents concurrent writes."""
        if cycle.watch_id is None or not said:
            return
        there = {
            state.service: state
            for state in cls.objects.filter(watch=cycle.watch_id, service__in=list(said))
        }
        states = [
            cls.after(there.get(service), cycle, service, words) for service, words in said.items()
        ]
        ServiceState.objects.bulk_create(
            states,
            update_conflicts=True,
            unique_fields=["watch", "service"],
            update_fields=cls.WRITTEN,
        )

    @classmethod
    def after(
        cls, before: ServiceState | None, cycle: Cycle, service: str, said: ReportedService
    ) -> ServiceState:
        """Return the state after a cycle. A cycle that ends again after later ones changes only its
        own mark."""
        assert cycle.watch_id is not None, "drills have no service states"
        status = said.status if said.status in cls.Status.values else cls.Status.UNKNOWN.value
        mark = Mark(cycle.pk, status, int(cycle.created_at.timestamp()))
        marks = with_mark(read_marks(before.marks) if before else (), mark)
        last = marks[-1]
        if before is not None and last.cycle != cycle.pk:
            name, detail, number = before.name, before.detail, before.cycle_id
        else:
            name, detail, number = said.name, said.detail, cycle.pk
        began = since(marks, int(before.since.timestamp()) if before else None)
        return cls(
            watch_id=cycle.watch_id,
            service=service,
            name=name[: cls.LONGEST_NAME],
            status=last.status,
            place=cls.place_of(last.status),
            detail=detail[: cls.LONGEST_DETAIL],
            since=datetime.fromtimestamp(began, UTC),
            seen_at=datetime.fromtimestamp(last.at, UTC),
            cycle_id=number,
            marks=[list(one) for one in marks],
        )

    @classmethod
    def place_of(cls, status: str) -> int:
        return [str(one) for one in cls.WORST_FIRST].index(status)
