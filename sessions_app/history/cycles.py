"""The last rounds of every watch, for its strip: read with the watches themselves, each along the
index of its own cycles, so that it costs the same however long the record is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db.models import DecimalField, F, JSONField, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from sessions_app.models import Cycle, Session, Watch
from sessions_app.reading.stopped import stopped_by

SHOWN = 40
STOPPED = "stopped"
WORDS: dict[str, str] = dict([*Cycle.State.choices, *Cycle.Outcome.choices])
COLUMNS = ("pk", "state", "outcome", "created_at", "cost", "stop_cause", "stop_words")


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    cycle: int
    kind: str
    """Its outcome, how far it is while it has none, or that somebody stopped it."""
    word: str
    began: datetime
    cost: Decimal | None
    """None while nothing is known of it."""

    @property
    def is_over(self) -> bool:
        return self.kind not in Cycle.ACTIVE_STATES


class AsRows(Subquery):
    """The rows of a subquery as one JSON list of lists."""

    output_field = JSONField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "(SELECT json_group_array(json_array({})) FROM (%(subquery)s) AS row_of)"
        return self.as_sql(compiler, connection, template=template.format(_names()), **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "(SELECT jsonb_agg(jsonb_build_array({})) FROM (%(subquery)s) AS row_of)"
        return self.as_sql(compiler, connection, template=template.format(_names()), **extra)


def _names() -> str:
    return ", ".join(f"row_of.round_{name}" for name in COLUMNS)


def with_rounds(watches: QuerySet[Watch]) -> QuerySet[Watch, Any]:
    """Each with `last_rounds`, which `rounds_in` reads."""
    return watches.annotate(last_rounds=AsRows(_latest_of_each()))


def rounds_in(rows: Iterable[Sequence[Any]] | None) -> tuple[Round, ...]:
    """Oldest first, as a strip is read."""
    found = (_round(dict(zip(COLUMNS, row, strict=True))) for row in rows or ())
    return tuple(sorted(found, key=lambda one: one.cycle))


def cost_per_round(rounds: Iterable[Round]) -> Decimal | None:
    """The mean of those that are over and of which it is known."""
    known = [one.cost for one in rounds if one.is_over and one.cost is not None]
    return sum(known, Decimal(0)) / len(known) if known else None


def _latest_of_each() -> QuerySet[Cycle, Any]:
    runs = Session.objects.filter(cycle=OuterRef("pk")).order_by()
    money = Sum(Coalesce("cost_usd", "estimated_cost_usd"), output_field=DecimalField())
    asked = {"status": Session.Status.INTERRUPTED, "stop_cause__in": Session.ASKED_TO_STOP}
    stop = runs.filter(**asked).order_by("-id")
    own = Cycle.objects.filter(watch=OuterRef("pk")).order_by("-id")
    found = own.annotate(
        cost=Subquery(runs.values("cycle").annotate(sum=money).values("sum")),
        stop_cause=Subquery(stop.values("stop_cause")[:1]),
        stop_words=Subquery(stop.values("stop_requested")[:1]),
    )
    named: dict[str, Any] = {f"round_{name}": F(name) for name in COLUMNS}
    return found.values(**named)[:SHOWN]


def _round(row: dict[str, Any]) -> Round:
    kind = row["outcome"] if row["state"] == Cycle.State.FINISHED else row["state"]
    stop = stopped_by(row["stop_cause"] or "", row["stop_words"] or "")
    is_stopped = bool(stop) and kind not in (*Cycle.GOOD_OUTCOMES, *Cycle.ACTIVE_STATES)
    return Round(
        cycle=row["pk"],
        kind=STOPPED if is_stopped else kind,
        word=stop if is_stopped else WORDS.get(kind, kind),
        began=_moment(row["created_at"]),
        cost=None if row["cost"] is None else Decimal(str(row["cost"])),
    )


def _moment(text: str) -> datetime:
    """As the database writes it into JSON: SQLite without a zone, because all is UTC there."""
    moment = datetime.fromisoformat(text)
    return moment if timezone.is_aware(moment) else moment.replace(tzinfo=UTC)
