"""Named questions about sessions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import Count, Q, Sum

if TYPE_CHECKING:
    from sessions_app.models import Session  # noqa: F401  (named in the base class below)

SEARCHED_FIELDS = (
    "session_id",
    "workdir",
    "error",
    "escalation_reason",
    "cycle__outcome_reason",
    "cycle__watch__name",
    "cycle__watch_name",
    "cycle__drill",
)
# What a list never shows.
LONG_FIELDS = ("prompt", "result", "argv", "report", "handoff", "findings", "continuation_facts")


class SessionQuerySet(models.QuerySet["Session"]):
    def real(self) -> SessionQuerySet:
        """Without drills: only these cost money."""
        return self.filter(cycle__drill="")

    def drills(self) -> SessionQuerySet:
        return self.exclude(cycle__drill="")

    def started_since(self, start: datetime | None) -> SessionQuerySet:
        """Runs that began, in a period or ever: nothing else can have cost anything."""
        if start is None:
            return self.filter(started_at__isnull=False)
        return self.filter(started_at__gte=start)

    def amounts_by(self, *keys: str) -> list[dict[str, Any]]:
        """Costs in groups, with what is estimated or unknown apart from what is known."""
        without = Q(cost_usd=None, finished_at__isnull=False)
        guessed = Q(estimated_cost_usd__isnull=False)
        rows = (
            self.order_by()
            .values(*keys)
            .annotate(
                runs=Count("pk"),
                known=Sum("cost_usd", default=Decimal(0)),
                estimated=Count("pk", filter=without & guessed),
                estimated_usd=Sum(
                    "estimated_cost_usd", filter=without & guessed, default=Decimal(0)
                ),
                unknown=Count("pk", filter=without & ~guessed),
            )
        )
        return [{"cost_usd": row.pop("known"), **row} for row in rows]

    def ask_to_stop(self, cause: str, words: str) -> int:
        """The one place that asks a run to stop: those that run and were not asked before.

        Each ends its CLI within a second and is recorded as interrupted.
        """
        running = self.filter(status="running", stop_cause="")
        return running.update(stop_cause=cause, stop_requested=words[:200])

    def for_list(self) -> SessionQuerySet:
        """With all that a row of a list shows, and nothing that is long."""
        return self.select_related("cycle__watch").defer(*LONG_FIELDS)

    def matching(self, words: str) -> SessionQuerySet:
        """Sessions that hold the words, or the one session whose number is given."""
        condition = Q()
        for field in SEARCHED_FIELDS:
            condition |= Q(**{f"{field}__icontains": words})
        number = words.removeprefix("#")
        if number.isdecimal() and len(number) < 19:
            condition |= Q(pk=int(number))
        return self.filter(condition)

    def costs_since(self, periods: Mapping[str, datetime]) -> dict[str, Decimal]:
        """The sum of each period, in one query over the longest of them."""
        sums = {
            name: Sum("cost_usd", filter=Q(started_at__gte=start), default=Decimal(0))
            for name, start in periods.items()
        }
        return self.filter(started_at__gte=min(periods.values())).aggregate(**sums)

    def without_cost_since(self, start: datetime) -> int:
        """Runs that have ended and never said what they cost."""
        ended = self.filter(started_at__gte=start, finished_at__isnull=False, cost_usd=None)
        return int(ended.aggregate(count=Count("pk"))["count"])
