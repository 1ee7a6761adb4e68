"""Rebuild and check of derived tables: period costs, daily verdicts, service states."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, F, Q, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import TruncDate, TruncMonth
from django.utils import timezone

from sessions_app.history.services import differing_services, rebuild_services
from sessions_app.models import DailyVerdict, PeriodCost, Session, SessionEvent
from sessions_app.models.costs import AMOUNTS, KEPT_TOKENS, KEY_FIELDS, TOKEN_FIELDS
from sessions_app.models.session import EventKind
from sessions_app.text import exact_money

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
    **{f"sum_{name}": Sum(name, default=0) for name in KEPT_TOKENS},
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
        **{name: row[f"sum_{name}"] for name in KEPT_TOKENS},
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


# The check uses plain SQL and Python, and none of the code that maintains or rebuilds the tables,
# so that it finds errors of that code.

ROUNDING = 1e-6
"""Tolerance, because SQLite adds floats."""
SHOWN = 20
COLUMNS = 9
LONGEST = 10_000

SESSIONS = """
    SELECT s.id, s.started_at, s.finished_at, s.cost_usd, s.estimated_cost_usd, s.tier, s.model,
           s.input_tokens + s.output_tokens + s.cache_read_tokens + s.cache_creation_tokens,
           c.watch_id, c.watch_name, c.drill, s.watch_id,
           s.session_id, s.workdir, s.error, s.escalation_reason, s.request,
           c.outcome_reason, c.watch_name, c.drill, c.prompt, t.text,
           s.output_tokens, s.cache_read_tokens, s.cache_creation_tokens
    FROM sessions s JOIN sessions_app_cycle c ON c.id = s.cycle_id
    LEFT JOIN sessions_app_searchtext t ON t.session_id = s.id
"""
COSTS = """
    SELECT span, first_day, watch_number, watch_name, drill, tier, model,
           runs, cost_usd, estimated, estimated_usd, unknown, tokens,
           output_tokens, cache_read_tokens, cache_creation_tokens
    FROM sessions_app_periodcost
"""
VERDICTS = "SELECT day, verdict, count FROM sessions_app_dailyverdict"
EVENTS = """
    SELECT created_at, payload FROM sessions_app_sessionevent
    WHERE source = 'supervisor' AND kind = 'command'
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    sessions: int
    differences: tuple[str, ...]
    """Messages about the first differences."""

    @property
    def is_right(self) -> bool:
        return not self.differences


def check() -> Checked:
    zone = ZoneInfo(settings.TIME_ZONE)
    there = {number for (number,) in _rows("SELECT id FROM sessions_app_watch")}
    costs: defaultdict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0] * COLUMNS)
    sessions = 0
    differences: list[str] = []
    for row in _rows(SESSIONS):
        sessions += 1
        differences += _odd_session(row)
        for key in _keys(row, zone):
            costs[key] = [a + b for a, b in zip(costs[key], _amounts(row), strict=True)]
        if len(differences) >= SHOWN:
            break
    else:
        differences += _different(costs, _stored_costs(there))
    differences += _different_verdicts(zone)
    differences += differing_services()
    return Checked(sessions=sessions, differences=tuple(differences[:SHOWN]))


def _odd_session(row: tuple[Any, ...]) -> Iterator[str]:
    number, cycles_watch, own_watch, *fields, text = row[0], row[8], *row[11:-3]
    if cycles_watch != own_watch:
        yield f"session {number} is of watch {own_watch}, its cycle of watch {cycles_watch}"
    if text != "\n".join(field[:LONGEST] for field in fields):
        yield f"session {number} has an outdated search text"


def _keys(row: tuple[Any, ...], zone: ZoneInfo) -> list[tuple[Any, ...]]:
    """Return the keys of a started session: day, month and day in UTC."""
    if row[1] is None:
        return []
    day = _moment(row[1]).astimezone(zone).date()
    utc_day = _moment(row[1]).astimezone(UTC).date()
    tier, model, watch, name, drill = row[5], row[6], row[8], row[9], row[10]
    return [
        ("day", day, watch or 0, name, drill, tier, model),
        ("month", day.replace(day=1), watch or 0, name, drill, tier, model),
        ("utc_day", utc_day, watch or 0, name, drill, tier, model),
    ]


def _amounts(row: tuple[Any, ...]) -> list[float]:
    finished, cost, guess, tokens = row[2], row[3], row[4], row[7]
    silent = finished is not None and cost is None
    guessed = float(guess) if silent and guess is not None else 0.0
    unknown = silent and guess is None
    estimated = silent and guess is not None
    return [1, float(cost or 0), int(estimated), guessed, int(unknown), tokens, *row[-3:]]


def _stored_costs(there: set[int]) -> dict[tuple[Any, ...], list[float]]:
    """Return the stored sums; those of removed watches have the id 0, as their cycles do."""
    stored: defaultdict[tuple[Any, ...], list[float]] = defaultdict(lambda: [0.0] * COLUMNS)
    for span, first_day, watch, name, drill, tier, model, *amounts in _rows(COSTS):
        key = (span, _date(first_day), watch if watch in there else 0, name, drill, tier, model)
        stored[key] = [a + float(b) for a, b in zip(stored[key], amounts, strict=True)]
    return stored


def _different(
    true: dict[tuple[Any, ...], list[float]], stored: dict[tuple[Any, ...], list[float]]
) -> Iterator[str]:
    nothing = [0.0] * COLUMNS
    for key in sorted({*true, *stored}, key=str):
        runs, sums = true.get(key, nothing), stored.get(key, nothing)
        if any(abs(a - b) > ROUNDING * max(1, runs[0]) for a, b in zip(runs, sums, strict=True)):
            span, first_day, watch, name, drill, tier, model = key
            whose = drill or name or f"watch {watch}"
            yield (
                f"{span} {first_day}, {whose}, Tier {tier} ({model}): "
                f"stored {_shown(sums)}, the sessions give {_shown(runs)}"
            )


def _shown(amounts: list[float]) -> str:
    runs, cost, estimated, guessed, unknown, tokens, out, read, written = amounts
    known, guess = (exact_money(round(sum_usd, 7)) for sum_usd in (cost, guessed))
    return (
        f"{runs:.0f} sessions, {known}, {estimated:.0f} estimated at {guess}, "
        f"{unknown:.0f} unknown, {tokens:.0f} tokens "
        f"({out:.0f} out, {read:.0f} read from the cache, {written:.0f} written to it)"
    )


def _different_verdicts(zone: ZoneInfo) -> Iterator[str]:
    """Compare the verdicts of days whose events are all stored."""
    kept = timedelta(days=settings.CLAUDEOPS_EVENT_RETENTION_DAYS - 1)
    since = datetime.now(zone).date() - kept
    true: Counter[tuple[date, str]] = Counter()
    for created_at, payload in _rows(EVENTS):
        day, facts = _moment(created_at).astimezone(zone).date(), _data(payload)
        if day > since and isinstance(facts.get("verdict"), str):
            true[day, facts["verdict"]] += 1
    stored = {(_date(day), verdict): count for day, verdict, count in _rows(VERDICTS)}
    recent = {key for key in stored if key[0] > since}
    for day, verdict in sorted({*true, *recent}):
        runs, sums = true[day, verdict], stored.get((day, verdict), 0)
        if runs != sums:
            yield f"{day}: stored {sums} times {verdict!r}, the events give {runs}"


def _rows(statement: str) -> Iterator[tuple[Any, ...]]:
    with connection.chunked_cursor() as cursor:
        cursor.execute(statement)
        while rows := cursor.fetchmany(AT_ONCE):
            yield from rows


def _moment(value: Any) -> datetime:
    """Parse a time; SQLite stores UTC as text without a zone."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _date(value: Any) -> date:
    return date.fromisoformat(value) if isinstance(value, str) else value


def _data(value: Any) -> dict[str, Any]:
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}
