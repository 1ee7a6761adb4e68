"""Records for other systems: totals for Prometheus, exports of traces by OpenTelemetry."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models, transaction
from django.db.models import F
from django.db.models.functions import Greatest
from django.utils import timezone

from sessions_app.models.fields import OutsideCharField

if TYPE_CHECKING:
    from sessions_app.models.cycle import Cycle
    from sessions_app.models.session import Session

# Ids of traces and spans follow from the record: what is sent twice is one span, and a run knows
# the span of its session before that ends.


def trace_id(cycle: Cycle) -> str:
    return _hash(f"cycle {cycle.pk} {cycle.created_at.isoformat()}")[:32]


def span_id(cycle: Cycle, name: str) -> str:
    return _hash(f"{trace_id(cycle)} {name}")[:16]


def session_span_id(session: Session) -> str:
    return span_id(session.cycle, f"session {session.pk}")


def traceparent(session: Session) -> str:
    """Name the span of a session as W3C Trace Context does."""
    return f"00-{trace_id(session.cycle)}-{session_span_id(session)}-01"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class MetricTotal(models.Model):
    """Running total of something that happened, with its labels; the values of counters.

    Added to in the transaction of what it counts. Never reduced: retention and removals do not
    change it, so that a counter never decreases. A drill counts nothing.
    """

    class Name(models.TextChoices):
        """Things that are counted. The labels are in the order that the comment gives."""

        CYCLES = "cycles", "ended cycles"  # number of the watch, its name, outcome
        REPAIRS = "repairs", "resolved incidents"  # how
        FIXES = "fixes", "fixes that agents reported"  # whether they were verified
        APPROVALS = "approvals", "closed approvals"  # kind, state
        ALERTS = "alerts", "deliveries of alerts"  # source, result
        DECISIONS = "decisions", "decisions on commands"  # tier, verdict
        TRACES = "traces", "exports of traces"  # result

    name = models.CharField(max_length=20, choices=Name.choices)
    labels = models.CharField(max_length=500, help_text="List of strings, as JSON.")
    count = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0, help_text="Sum of what each took; 0 without a duration.")
    last_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name", "labels"], name="one_metric_total"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.labels}: {self.count}"

    @property
    def values(self) -> list[str]:
        return [str(value) for value in json.loads(self.labels)]

    @classmethod
    def add(
        cls,
        name: str,
        *labels: object,
        seconds: float = 0,
        count: int = 1,
        at: datetime | None = None,
    ) -> None:
        key = {
            "name": name,
            "labels": json.dumps([str(label) for label in labels], ensure_ascii=False),
        }
        now = at or timezone.now()
        rows = cls.objects.filter(**key)
        changes = {
            "count": F("count") + count,
            "seconds": F("seconds") + max(0.0, seconds),
            "last_at": Greatest(F("last_at"), now),
        }
        with transaction.atomic():
            if not rows.update(**changes):
                cls.objects.get_or_create(**key, defaults={"last_at": now})
                rows.update(**changes)


class TraceExport(models.Model):
    """Export of the trace of one cycle by OpenTelemetry: what waits, and what was sent.

    Written in the transaction that ends the cycle, so that a worker that dies loses nothing.
    """

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        SENT = "sent", "sent"
        FAILED = "failed", "failed"

    cycle = models.OneToOneField(
        "sessions_app.Cycle", on_delete=models.CASCADE, related_name="trace_export"
    )
    state = models.CharField(max_length=20, choices=State.choices, default=State.WAITING)
    due_at = models.DateTimeField(default=timezone.now)
    tries = models.PositiveSmallIntegerField(default=0)
    sent_until = models.DateTimeField(
        null=True, blank=True, help_text="End of the last session that was sent."
    )
    error = OutsideCharField(max_length=300, blank=True, help_text="Why the last try failed.")
    is_refused = models.BooleanField(
        default=False, help_text="The collector refused the trace itself; it is not sent again."
    )

    class Meta:
        indexes = [
            # The exporter's query, every few seconds.
            models.Index(
                fields=["due_at"], condition=models.Q(state="waiting"), name="trace_export_due"
            ),
            # Failed ones, to be sent again, and shown.
            models.Index(fields=["-id"], condition=models.Q(state="failed"), name="trace_failed"),
        ]

    def __str__(self) -> str:
        return f"trace of cycle {self.cycle_id}: {self.state}"

    @classmethod
    def ask(cls, cycle: int) -> None:
        """Let the trace of a cycle that has ended, perhaps again, be exported."""
        if settings.OTEL_TRACES_URL:
            asked = {"state": cls.State.WAITING, "due_at": timezone.now(), "tries": 0}
            cls.objects.update_or_create(cycle_id=cycle, defaults=asked)
