from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import models

from sessions_app.models.cycle import Cycle
from sessions_app.models.service_marks import Mark, read_marks, since, with_mark
from sessions_app.models.watch import Watch


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a round said of one service."""

    name: str
    status: str
    detail: str = ""


class ServiceState(models.Model):
    """How a service of a watch is, as the last round that named it put it.

    Kept in the transaction that ends the round (`escalation/incidents`), so that a page reads no
    reports. A service that nobody looks at any more has no state: it goes with its watch, and what
    was said of it stays in the rounds. `claudeops rollups --check` reads all reports anew.
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
    service = models.CharField(max_length=200, help_text="In one spelling.")
    name = models.CharField(max_length=200, help_text="As the last report wrote it.")
    status = models.CharField(max_length=20, choices=Status.choices)
    place = models.PositiveSmallIntegerField(help_text="In a list, the worst first.")
    detail = models.CharField(max_length=300, blank=True)
    since = models.DateTimeField(help_text="When the round began that first said so.")
    seen_at = models.DateTimeField(help_text="When the last round began that named it.")
    cycle = models.ForeignKey(
        Cycle, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    marks = models.JSONField(
        default=list, help_text="Of the last 40 rounds that named it: cycle, status, seconds."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["watch", "service"], name="one_state_per_service"),
        ]
        indexes = [
            # The page of all services, the worst first.
            models.Index(fields=["place", "service", "id"], name="service_worst_first"),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.status}"

    @classmethod
    def enter(cls, cycle: Cycle, said: Mapping[str, Said]) -> None:
        """What a round of a watch said, by service. The caller is alone with it meanwhile."""
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
        cls, before: ServiceState | None, cycle: Cycle, service: str, said: Said
    ) -> ServiceState:
        """As it is once this round has spoken. A round that ends again after later ones changes
        its own mark alone."""
        assert cycle.watch_id is not None, "a drill's services are not kept"
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
