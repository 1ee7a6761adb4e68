from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import F
from django.utils import timezone

if TYPE_CHECKING:
    from sessions_app.models.event import SessionEvent

GATE = "gate"


class DailyVerdict(models.Model):
    """How often the gate allowed, contained or denied a command on one day.

    Kept in the transaction that writes the events (`EventLog`); it outlives them.
    """

    day = models.DateField(help_text="In the time zone of the installation.")
    verdict = models.CharField(max_length=20)
    count = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            # Also the index behind the last days on the page of walls.
            models.UniqueConstraint(fields=["day", "verdict"], name="one_daily_verdict"),
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.count} × {self.verdict}"

    @classmethod
    def count_events(cls, events: Iterable[SessionEvent]) -> None:
        judged = (event for event in events if is_verdict(event))
        found = Counter(
            (timezone.localdate(event.created_at), event.payload["verdict"]) for event in judged
        )
        # In one order, so that two writers never wait for each other.
        for (day, verdict), count in sorted(found.items()):
            cls._add(day, verdict, count)

    @classmethod
    def _add(cls, day: date, verdict: str, count: int) -> None:
        row = cls.objects.filter(day=day, verdict=verdict)
        if not row.update(count=F("count") + count):
            cls.objects.get_or_create(day=day, verdict=verdict)
            row.update(count=F("count") + count)


def is_verdict(event: SessionEvent) -> bool:
    return (
        event.source == "supervisor"
        and event.kind == GATE
        and isinstance(event.payload, dict)
        and isinstance(event.payload.get("verdict"), str)
        and len(event.payload["verdict"]) <= 20
    )
