from __future__ import annotations

from django.db import models
from django.utils import timezone


class BudgetNotice(models.Model):
    """That people were told of a budget: once for each of its periods and shares."""

    budget = models.CharField(max_length=40, help_text="`day`, `month` or `watch:3`.")
    period = models.DateField(help_text="The first day of the period.")
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
