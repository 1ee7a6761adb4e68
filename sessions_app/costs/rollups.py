"""Rebuild of derived tables: period costs, daily verdicts, service states."""

from __future__ import annotations

from datetime import UTC, timedelta, tzinfo
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, F, Q, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import TruncDate, TruncMonth
from django.utils import timezone

from sessions_app.history.services import rebuild_services
from sessions_app.models import DailyVerdict, PeriodCost, Session, SessionEvent
from sessions_app.models.costs import AMOUNTS, KEY_FIELDS, TOKEN_FIELDS
from sessions_app.models.session import EventKind

AT_ONCE = 2_000
NOTHING = Decimal(0)
WITHOUT = Q(cost_usd=None, finished_at__isnull=False)
GUESSED = Q(estimated_cost_usd__isnull=False)
TOKENS = sum((F(name) for name in TOKEN_FIELDS[1:]), F(TOKEN_FIELDS[0]))
SESSION_SUMS = {
    "runs": Count("pk"),
    "known": Sum("cost_usd", default=NOTHING),
    "guesses": Count("pk", filter=WITHOUT & GUESSED),
    "guessed": Sum("estimated_cost_usd", filter=WITHOUT & GUESSED, default=NOTHING),
    "unknown": Count("pk", filter=WITHOUT & ~GUESSED),
    "tokens": Sum(TOKENS, default=0),
}
SESSION_KEYS = ("cycle__watch_id", "cycle__watch_name", "cycle__drill", "tier", "model")
KEYS_BESIDE_TIME = [name for name in KEY_FIELDS if name not in {"span", "first_day"}]


def rebuild_sums() -> None:
    """Compute all sums again; daily verdicts only for days with all events.

    The caller holds the installation lock if sessions may start or end meanwhile.
    """
    with transaction.atomic():
        PeriodCost.objects.all().delete()
        PeriodCost.objects.bulk_create(_days(PeriodCost.Span.DAY), batch_size=AT_ONCE)
        PeriodCost.objects.bulk_create(_days(PeriodCost.Span.UTC_DAY, UTC), batch_size=AT_ONCE)
        PeriodCost.objects.bulk_create(_months(), batch_size=AT_ONCE)
        _count_verdicts()
        rebuild_services()


def _days(span: str, zone: tzinfo | None = None) -> list[PeriodCost]:
    begun = Session.objects.filter(started_at__isnull=False).order_by()
    dated = begun.annotate(first_day=TruncDate("started_at", tzinfo=zone))
    rows = dated.values("first_day", *SESSION_KEYS).annotate(**SESSION_SUMS)
    return [_day(span, row) for row in rows]


def _day(span: str, row: dict[str, Any]) -> PeriodCost:
    return PeriodCost(
        span=span,
        first_day=row["first_day"],
        watch_number=row["cycle__watch_id"] or 0,
        watch_name=row["cycle__watch_name"],
        drill=row["cycle__drill"],
        tier=row["tier"],
        model=row["model"],
        runs=row["runs"],
        cost_usd=row["known"],
        estimated=row["guesses"],
        estimated_usd=row["guessed"],
        unknown=row["unknown"],
        tokens=row["tokens"],
    )


def _months() -> list[PeriodCost]:
    days = PeriodCost.objects.filter(span=PeriodCost.Span.DAY).order_by()
    rows = (
        days.annotate(month=TruncMonth("first_day"))
        .values("month", *KEYS_BESIDE_TIME)
        .annotate(**{f"sum_{name}": Sum(name) for name in AMOUNTS})
    )
    return [
        PeriodCost(
            span=PeriodCost.Span.MONTH,
            first_day=row["month"],
            **{name: row[name] for name in KEYS_BESIDE_TIME},
            **{name: row[f"sum_{name}"] for name in AMOUNTS},
        )
        for row in rows
    ]


def _count_verdicts() -> None:
    kept = timedelta(days=settings.CLAUDEOPS_EVENT_RETENTION_DAYS - 1)
    since = timezone.localdate() - kept
    _lock_verdicts()
    DailyVerdict.objects.filter(day__gt=since).delete()
    judged = SessionEvent.objects.filter(
        source=SessionEvent.Source.SUPERVISOR, kind=EventKind.COMMAND
    )
    counted = (
        judged.order_by()
        .annotate(day=TruncDate("created_at"), verdict=KT("payload__verdict"))
        .filter(day__gt=since, verdict__isnull=False)
        .values_list("day", "verdict")
        .annotate(count=Count("pk"))
    )
    DailyVerdict.objects.bulk_create(
        [DailyVerdict(day=day, verdict=verdict, count=count) for day, verdict, count in counted]
    )


def _lock_verdicts() -> None:
    """Wait for writers of events: they count verdicts without the installation lock."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            table = DailyVerdict._meta.db_table
            cursor.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
