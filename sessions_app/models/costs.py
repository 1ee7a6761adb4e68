"""Costs per day and month, and the budget notices that were sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date
from decimal import Decimal
from typing import Any

from django.db import models
from django.db.models import F, Sum
from django.db.models.expressions import Combinable
from django.db.models.functions import Round
from django.utils import timezone

NOTHING = Decimal(0)
PLACES = 10
KEY_FIELDS = ("span", "first_day", "watch_number", "watch_name", "drill", "tier", "model")
TOKEN_FIELDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")
KEPT_TOKENS = TOKEN_FIELDS[1:]
"""Stored beside the sum of all tokens; the input tokens are the rest."""
AMOUNTS = ("runs", "cost_usd", "estimated", "estimated_usd", "unknown", "tokens", *KEPT_TOKENS)
# Columns of a session that `counted` reads.
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

    def utc_days_since(self, first_day: date) -> PeriodCostQuerySet:
        return self.filter(span=PeriodCost.Span.UTC_DAY, first_day__gte=first_day)

    def months(self) -> PeriodCostQuerySet:
        return self.filter(span=PeriodCost.Span.MONTH)

    def amounts_by(self, *keys: str) -> list[dict[str, Any]]:
        """Return sums in groups, without groups that have no sessions."""
        sums = {f"sum_{name}": Sum(name) for name in AMOUNTS}
        rows = self.order_by().values(*keys).annotate(**sums).filter(sum_runs__gt=0)
        return [
            {key: row[key] for key in keys} | {name: row[f"sum_{name}"] for name in AMOUNTS}
            for row in rows
        ]


class PeriodCost(models.Model):
    """Cost of the sessions that started on one day or in one month, by watch, tier and model.

    Pages read these sums instead of all sessions. They are updated in the transaction that changes
    a session (`Session._moved`). `claudeops rollups --check` compares them with the sessions. After
    a change of the time zone, local days and months are wrong until `claudeops rollups --rebuild`;
    budgets read the days in UTC, which stay correct.
    """

    class Span(models.TextChoices):
        DAY = "day", "day"
        MONTH = "month", "month"
        UTC_DAY = "utc_day", "day in UTC"

    span = models.CharField(max_length=10, choices=Span.choices)
    first_day = models.DateField(
        help_text="In the time zone of the installation, or in UTC for a day in UTC."
    )
    watch_number = models.BigIntegerField(
        default=0, help_text="Id of the watch, kept after its removal. 0 without a watch."
    )
    watch_name = models.CharField(
        max_length=100, blank=True, help_text="Name of the watch when the cycle started."
    )
    drill = models.CharField(max_length=100, blank=True)
    tier = models.PositiveSmallIntegerField()
    model = models.CharField("requested model", max_length=100)

    runs = models.BigIntegerField(default=0)
    cost_usd = models.DecimalField(max_digits=20, decimal_places=PLACES, default=NOTHING)
    estimated = models.BigIntegerField(
        default=0, help_text="Sessions whose cost is an estimate from the stream."
    )
    estimated_usd = models.DecimalField(max_digits=20, decimal_places=PLACES, default=NOTHING)
    unknown = models.BigIntegerField(default=0, help_text="Ended sessions whose cost is unknown.")
    tokens = models.BigIntegerField(default=0, help_text="All tokens together.")
    output_tokens = models.BigIntegerField(default=0)
    cache_read_tokens = models.BigIntegerField(default=0)
    cache_creation_tokens = models.BigIntegerField(default=0)

    objects = PeriodCostQuerySet.as_manager()

    class Meta:
        constraints = [
            # Also the index for the costs of a period.
            models.UniqueConstraint(fields=KEY_FIELDS, name="one_period_cost"),
        ]

    def __str__(self) -> str:
        return f"{self.first_day} ({self.span}) Tier {self.tier} of {self.drill or self.watch_name}"

    @classmethod
    def move(cls, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Replace the amounts of a session before a change by those after it."""
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
        changes = {name: _sum(name, amount) for name, amount in amounts.items() if amount}
        if not changes:
            return
        others = {name: value for name, value in key.items() if name not in {"day", "utc_day"}}
        first_days = {
            cls.Span.DAY: key["day"],
            cls.Span.MONTH: key["day"].replace(day=1),
            cls.Span.UTC_DAY: key["utc_day"],
        }
        for span, first_day in first_days.items():
            place = {**others, "span": span, "first_day": first_day}
            if not cls.objects.filter(**place).update(**changes):
                cls.objects.get_or_create(**place)
                cls.objects.filter(**place).update(**changes)


def _sum(name: str, amount: Decimal | int) -> Combinable:
    """Return the sum of a column and an amount; SQLite adds dollars as binary fractions."""
    added = F(name) + amount
    return Round(added, precision=PLACES) if isinstance(amount, Decimal) else added


@dataclass(frozen=True, slots=True)
class Counted:
    """Key and amounts that one session adds to `PeriodCost`."""

    key: dict[str, Any]
    amounts: dict[str, Any]


def counted(row: Mapping[str, Any] | None) -> Counted | None:
    """Return the key and amounts of a session, or None if it has not started."""
    if row is None or row["started_at"] is None:
        return None
    cost, guess = row["cost_usd"], row["estimated_cost_usd"]
    is_without = cost is None and row["finished_at"] is not None
    is_guessed = is_without and guess is not None
    return Counted(
        key={
            "day": timezone.localdate(row["started_at"]),
            "utc_day": row["started_at"].astimezone(UTC).date(),
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
            **{name: row[name] for name in KEPT_TOKENS},
        },
    )


class BudgetLimit(models.Model):
    """Budget of all watches together that a person set; it replaces the setting."""

    class Name(models.TextChoices):
        DAY = "day", "a day, all watches"
        MONTH = "month", "a month, all watches"

    name = models.CharField(max_length=10, choices=Name.choices, unique=True)
    limit_usd = models.DecimalField("dollars", max_digits=10, decimal_places=2)

    def __str__(self) -> str:
        return f"budget for {self.get_name_display()}"


class BudgetNotice(models.Model):
    """Notification about a budget, sent once for each period and percentage."""

    budget = models.CharField(max_length=40, help_text="Like `day`, `month` or `watch:3`.")
    period = models.DateField(help_text="First day of the period.")
    percent = models.PositiveSmallIntegerField()
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["budget", "period", "percent"], name="budget_told_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.budget} of {self.period}: {self.percent} %"
