"""Totals for other systems, such as Prometheus."""

from __future__ import annotations

import json
from datetime import datetime

from django.db import models, transaction
from django.db.models import F
from django.db.models.functions import Greatest
from django.utils import timezone


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
