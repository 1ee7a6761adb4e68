from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from django.db import models
from django.db.models import F, Sum
from django.utils import timezone

NOTHING = Decimal(0)
KEY_FIELDS = ("span", "first_day", "watch_number", "watch_name", "drill", "tier", "model")
AMOUNTS = ("runs", "cost_usd", "estimated", "estimated_usd", "unknown", "tokens")
TOKEN_FIELDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
# What a session must be asked for before it is counted.
COUNTED_FIELDS = (
    *("started_at", "finished_at", "tier", "model", "cost_usd", "estimated_cost_usd"),
    *("cycle__watch_id", "cycle__watch_name", "cycle__drill", *TOKEN_FIELDS),
)


class PeriodCostQuerySet(models.QuerySet["PeriodCost"]):
    def real(self) -> PeriodCostQuerySet:
        return self.filter(drill="")

    def drills(self) -> PeriodCostQuerySet:
        return self.exclude(drill="")

    def days_since(self, first_day: date) -> PeriodCostQuerySet:
        return self.filter(span=PeriodCost.Span.DAY, first_day__gte=first_day)

    def months(self) -> PeriodCostQuerySet:
        return self.filter(span=PeriodCost.Span.MONTH)

    def amounts_by(self, *keys: str) -> list[dict[str, Any]]:
        """Sums in groups. A row that was taken back to nothing is left out."""
        sums = {f"sum_{name}": Sum(name) for name in AMOUNTS}
        rows = self.order_by().values(*keys).annotate(**sums).filter(sum_runs__gt=0)
        return [
            {key: row[key] for key in keys} | {name: row[f"sum_{name}"] for name in AMOUNTS}
            for row in rows
        ]


class PeriodCost(models.Model):
    """What the runs that began on one day, or in one month, cost together: pages read this in place
    of the runs.

    It is kept in the transaction that moves a session (`Session._moved`), as the difference that
    the move makes, so it cannot lag behind. `claudeops rollups --check` counts everything anew.
    """

    class Span(models.TextChoices):
        DAY = "day", "day"
        MONTH = "month", "month"

    span = models.CharField(max_length=10, choices=Span.choices)
    first_day = models.DateField(help_text="In the time zone of the installation.")
    watch_number = models.BigIntegerField(
        default=0, help_text="No key: what a removed watch cost stays. 0 without a watch."
    )
    watch_name = models.CharField(
        max_length=100, blank=True, help_text="As the watch was called when the cycle began."
    )
    drill = models.CharField(max_length=100, blank=True)
    tier = models.PositiveSmallIntegerField()
    model = models.CharField("model asked for", max_length=100)

    runs = models.BigIntegerField(default=0)
    cost_usd = models.DecimalField(max_digits=20, decimal_places=10, default=NOTHING)
    estimated = models.BigIntegerField(
        default=0, help_text="Runs without a figure of which the stream proves a part."
    )
    estimated_usd = models.DecimalField(max_digits=20, decimal_places=10, default=NOTHING)
    unknown = models.BigIntegerField(
        default=0, help_text="Runs that have ended and of whose cost nothing is known."
    )
    tokens = models.BigIntegerField(default=0)

    objects = PeriodCostQuerySet.as_manager()

    class Meta:
        constraints = [
            # Also the index behind the costs of a period.
            models.UniqueConstraint(fields=KEY_FIELDS, name="one_period_cost"),
        ]

    def __str__(self) -> str:
        return f"{self.first_day} ({self.span}) Tier {self.tier} of {self.drill or self.watch_name}"

    @classmethod
    def move(cls, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Count a session as it is now in place of as it was; None where it was not there."""
        old, new = counted(before), counted(after)
        if old and new and old.key == new.key:
            cls._add(new.key, {name: new.amounts[name] - old.amounts[name] for name in AMOUNTS})
            return
        if old:
            cls._add(old.key, {name: -amount for name, amount in old.amounts.items()})
        if new:
            cls._add(new.key, new.amounts)

    @classmethod
    def _add(cls, key: dict[str, Any], amounts: dict[str, Any]) -> None:
        changes = {name: F(name) + amount for name, amount in amounts.items() if amount}
        if not changes:
            return
        day = key["first_day"]
        for span, first_day in ((cls.Span.DAY, day), (cls.Span.MONTH, day.replace(day=1))):
            place = {**key, "span": span, "first_day": first_day}
            if not cls.objects.filter(**place).update(**changes):
                cls.objects.get_or_create(**place)
                cls.objects.filter(**place).update(**changes)


@dataclass(frozen=True, slots=True)
class Counted:
    """Under which key a session is counted, by its day, and as how much."""

    key: dict[str, Any]
    amounts: dict[str, Any]


def counted(row: Mapping[str, Any] | None) -> Counted | None:
    """None: it has not begun, and cost nothing."""
    if row is None or row["started_at"] is None:
        return None
    cost, guess = row["cost_usd"], row["estimated_cost_usd"]
    is_without = cost is None and row["finished_at"] is not None
    is_guessed = is_without and guess is not None
    return Counted(
        key={
            "first_day": timezone.localdate(row["started_at"]),
            "watch_number": row["cycle__watch_id"] or 0,
            "watch_name": row["cycle__watch_name"],
            "drill": row["cycle__drill"],
            "tier": row["tier"],
            "model": row["model"],
        },
        amounts={
            "runs": 1,
            "cost_usd": cost or NOTHING,
            "estimated": int(is_guessed),
            "estimated_usd": guess if is_guessed else NOTHING,
            "unknown": int(is_without and not is_guessed),
            "tokens": sum(row[name] for name in TOKEN_FIELDS),
        },
    )
