"""Latest cycles of every watch, for the history bar, and texts about stops.

The cycles are read in the query for the watches, by the index on `Cycle.watch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db.models import DecimalField, F, JSONField, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from sessions_app.models import Cycle, ServiceState, Session, Watch
from sessions_app.text import one_line

LONGEST = 80
Cause = Session.StopCause
WITHOUT_A_NAME = {
    Cause.PAUSE: "the pause switch",
    Cause.WORKER: "the end of the worker",
    Cause.FOREGROUND: "the end of the command in the terminal",
}


def stopped_by(cause: str, words: str) -> str:
    """Return a text like "stopped by ada", or an empty string for a limit of the session."""
    if cause == Cause.PERSON:
        return f"stopped by {one_line(words, LONGEST) or 'a person'}"
    return f"stopped by {WITHOUT_A_NAME[Cause(cause)]}" if cause in WITHOUT_A_NAME else ""


def stop_of(sessions: Iterable[Session]) -> str:
    """Return who stopped the last session that ends a chain, or an empty string."""
    runs = (session for session in sessions if session.counts_as_evidence)
    last = max(runs, key=lambda session: session.pk or 0, default=None)
    if last is None or last.status != Session.Status.INTERRUPTED:
        return ""
    return stopped_by(last.stop_cause, last.stop_requested)


SHOWN = 40
STOPPED = "stopped"
WORDS: dict[str, str] = dict([*Cycle.State.choices, *Cycle.Outcome.choices])
COLUMNS = ("pk", "state", "outcome", "created_at", "cost", "stop_cause", "stop_words")


@dataclass(frozen=True, kw_only=True, slots=True)
class PastCycle:
    cycle: int
    kind: str
    """Outcome, state of an active cycle, or `stopped`."""
    word: str
    began: datetime
    cost: Decimal | None
    """None if the cost is unknown."""

    @property
    def is_over(self) -> bool:
        return self.kind not in Cycle.ACTIVE_STATES


class AsRows(Subquery):
    """Subquery whose rows are one JSON list of lists."""

    output_field = JSONField()

    def __init__(self, queryset: QuerySet[Any, Any], columns: Sequence[str]) -> None:
        super().__init__(queryset)
        self.columns = ", ".join(f"row_of.{name}" for name in columns)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "(SELECT json_group_array(json_array({})) FROM (%(subquery)s) AS row_of)"
        return self.as_sql(compiler, connection, template=template.format(self.columns), **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "(SELECT jsonb_agg(jsonb_build_array({})) FROM (%(subquery)s) AS row_of)"
        return self.as_sql(compiler, connection, template=template.format(self.columns), **extra)


def with_cycles(watches: QuerySet[Watch]) -> QuerySet[Watch, Any]:
    """Annotate watches with `last_cycles`, which `cycles_in` reads."""
    return watches.annotate(
        last_cycles=AsRows(_latest_of_each(), [f"cycle_{name}" for name in COLUMNS])
    )


def with_unseen_services(watches: QuerySet[Watch]) -> QuerySet[Watch, Any]:
    """Annotate watches with `unseen_services`: the names of services not looked at, in rows."""
    own = ServiceState.objects.not_looked_at().filter(watch=OuterRef("pk")).order_by("service")
    return watches.annotate(
        unseen_services=AsRows(own.values(service_name=F("name")), ["service_name"])
    )


def cycles_in(rows: Iterable[Sequence[Any]] | None) -> tuple[PastCycle, ...]:
    """Return the cycles of `last_cycles`, oldest first."""
    found = (_past_cycle(dict(zip(COLUMNS, row, strict=True))) for row in rows or ())
    return tuple(sorted(found, key=lambda one: one.cycle))


def cost_per_cycle(cycles: Iterable[PastCycle]) -> Decimal | None:
    """Return the mean cost of the finished cycles whose cost is known, or None."""
    known = [one.cost for one in cycles if one.is_over and one.cost is not None]
    return sum(known, Decimal(0)) / len(known) if known else None


def _latest_of_each() -> QuerySet[Cycle, Any]:
    runs = Session.objects.filter(cycle=OuterRef("pk")).order_by()
    money = Sum(Coalesce("cost_usd", "estimated_cost_usd"), output_field=DecimalField())
    asked = {"status": Session.Status.INTERRUPTED, "stop_cause__in": Session.ASKED_TO_STOP}
    stop = runs.evidence().filter(**asked).order_by("-id")
    own = Cycle.objects.filter(watch=OuterRef("pk")).order_by("-id")
    found = own.annotate(
        cost=Subquery(runs.values("cycle").annotate(sum=money).values("sum")),
        stop_cause=Subquery(stop.values("stop_cause")[:1]),
        stop_words=Subquery(stop.values("stop_requested")[:1]),
    )
    named: dict[str, Any] = {f"cycle_{name}": F(name) for name in COLUMNS}
    return found.values(**named)[:SHOWN]


def _past_cycle(row: dict[str, Any]) -> PastCycle:
    kind = row["outcome"] if row["state"] == Cycle.State.FINISHED else row["state"]
    stop = stopped_by(row["stop_cause"] or "", row["stop_words"] or "")
    is_stopped = bool(stop) and kind not in (*Cycle.GOOD_OUTCOMES, *Cycle.ACTIVE_STATES)
    return PastCycle(
        cycle=row["pk"],
        kind=STOPPED if is_stopped else kind,
        word=stop if is_stopped else WORDS.get(kind, kind),
        began=_moment(row["created_at"]),
        cost=None if row["cost"] is None else Decimal(str(row["cost"])),
    )


def _moment(text: str) -> datetime:
    """Parse a time in JSON of the database; SQLite writes UTC without a zone."""
    moment = datetime.fromisoformat(text)
    return moment if timezone.is_aware(moment) else moment.replace(tzinfo=UTC)
