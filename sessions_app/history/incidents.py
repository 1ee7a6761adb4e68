"""Advice, snooze times, costs and figures of incidents, and queries for the inbox."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Any

from django.db.models import Count, Min, QuerySet, Subquery, Sum, Value
from django.utils import timezone

from sessions_app.models import Cycle, Incident, IncidentEvent, Session
from sessions_app.models.incident import IncidentQuerySet
from sessions_app.models.installation import moment_text
from sessions_app.text import one_line

LONGEST_NOTE = 5_000
ADVICE_LENGTH = 300
MORNING = 8
SNOOZES = {
    "1h": "1 hour",
    "8h": "8 hours",
    "tomorrow": f"until tomorrow {MORNING}:00",
    "3d": "3 days",
}
PERIODS = {"1h": timedelta(hours=1), "8h": timedelta(hours=8), "3d": timedelta(days=3)}
State, Kind = Incident.State, Incident.Kind


def snooze_until(name: str, now: datetime) -> datetime | None:
    """Return the end of a snooze, or None for an unknown name. Tomorrow is in local time."""
    if name != "tomorrow":
        return now + PERIODS[name] if name in PERIODS else None
    here = timezone.localtime(now)
    morning = datetime.combine(here.date() + timedelta(days=1), datetime.min.time())
    return timezone.make_aware(morning.replace(hour=MORNING), here.tzinfo)


def wish_of(incident: Incident) -> str:
    """Return one line of advice for a person."""
    if incident.state == State.RESOLVED:
        return f"Nothing: {incident.get_resolved_as_display()}."
    if incident.is_snoozed:
        return f"Nothing until {moment_text(incident.snoozed_until)}: it is snoozed."
    if incident.state == State.WORKING:
        return "Nothing yet: a chain is working on it."
    if incident.state == State.VERIFYING:
        return _verifying(incident)
    if incident.seems_recovered:
        return "Nothing: the last cycle found it healthy, and one more resolves it."
    if incident.state == State.ACKNOWLEDGED and incident.has_woken:
        return f"Look at it again: it was snoozed until {moment_text(incident.snoozed_until)}."
    if incident.state == State.ACKNOWLEDGED and incident.owner is not None:
        name = incident.owner.get_username()
        if incident.owner_is_gone:
            return f"Assign it: the account of its owner {name} is disabled."
        return f"{name} owns it."
    return _asking(incident)


def _verifying(incident: Incident) -> str:
    if incident.verify_at is None:
        return "Nothing yet: a new cycle is verifying the fix."
    when = moment_text(incident.verify_at)
    if incident.is_unverified:
        return (
            f"Look whether the fix holds: it is not verified. The verification was due at {when}, "
            "and no cycle could start."
        )
    return f"Nothing yet: a new cycle verifies the fix at {when}."


def _asking(incident: Incident) -> str:
    if incident.kind == Kind.COULD_NOT_RUN:
        why = f": {one_line(incident.detail, ADVICE_LENGTH)}" if incident.detail else "."
        return f"Correct the configuration{why}{backing_off(incident)}"
    if incident.watch is None and not incident.drill:
        return "Resolve it: its watch was removed, so no cycle will check it again."
    if incident.times_reopened and incident.remedy:
        return f"Look at it yourself: this fix failed: {incident.remedy}"
    if incident.verifications_tried:
        return "Verify the fix: no cycle could."
    return f"Look at it: it has no owner yet.{backing_off(incident)}"


def backing_off(incident: Incident) -> str:
    """Return a sentence about a skipped schedule, or an empty string."""
    watch = incident.watch
    if watch is None or not watch.is_backed_off:
        return ""
    return (
        f" It failed {watch.failures_in_a_row} times in a row, so its schedule is skipped until "
        f"{moment_text(watch.backed_off_until)}."
    )


# The cost of an incident is that of the sessions of its cycles. Two incidents may share a cycle, so
# sums over several count each session once. Drills do not count.

ResolvedBy, Step = Incident.ResolvedBy, IncidentEvent.Kind
LOOKED_AT = 300
"""Number of the latest fixed incidents for cost and time to repair."""
Run = tuple[int, Decimal | None, datetime | None]
"""Cycle, cost and end of a session."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownCost:
    runs: int
    cost_usd: Decimal
    without_figure: int
    """Ended sessions without a reported cost; estimates are not added."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentCost(KnownCost):
    chains: Mapping[int, KnownCost]
    """Cost of each of its cycles, by id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentFigures:
    """Figures of the incidents that were resolved in a period."""

    resolved: int
    fixed: int
    """Fixed by the agent and verified."""
    cost_per_fix: Decimal | None
    time_to_repair: timedelta | None
    """Median time of the fixed ones from the first cycle to the verification."""
    looked_at: int
    """Number of fixed incidents behind cost and time."""


def cost_of(incident: Incident) -> IncidentCost:
    """Return the cost of an incident, with one query."""
    begun = Session.objects.filter(cycle__incidents=incident, started_at__isnull=False)
    runs = list(begun.values_list("cycle_id", "cost_usd", "finished_at"))
    by_chain: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_chain[run[0]].append(run)
    chains = {cycle: KnownCost(**_figures(own)) for cycle, own in by_chain.items()}
    return IncidentCost(**_figures(runs), chains=chains)


def _figures(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "runs": len(runs),
        "cost_usd": sum((cost for _cycle, cost, _end in runs if cost is not None), Decimal(0)),
        "without_figure": sum(cost is None and end is not None for _cycle, cost, end in runs),
    }


def figures_since(start: datetime) -> IncidentFigures:
    """Return the figures since a time, with two queries."""
    ended = Incident.objects.filter(drill="", resolved_at__gte=start).order_by()
    fixed = ended.filter(resolved_as=ResolvedBy.AGENT).order_by("-resolved_at", "-pk")[:LOOKED_AT]
    latest = list(fixed.values_list("first_seen_at", "resolved_at"))
    seconds = [(until - first).total_seconds() for first, until in latest if until]
    grouped: Any = ended.values("resolved_as")
    kinds = list(grouped.annotate(count=Count("pk"), cost=Min(_cost_of(fixed))))
    counted = {kind["resolved_as"]: kind["count"] for kind in kinds}
    spent = kinds[0]["cost"] or Decimal(0) if kinds else Decimal(0)
    return IncidentFigures(
        resolved=sum(counted.values()),
        fixed=counted.get(ResolvedBy.AGENT, 0),
        cost_per_fix=spent / len(latest) if latest else None,
        time_to_repair=timedelta(seconds=median(seconds)) if seconds else None,
        looked_at=len(latest),
    )


def _cost_of(incidents: QuerySet[Incident]) -> Subquery:
    """Return the cost of all incidents together; each session counts once."""
    cycles = Incident.cycles.through.objects.filter(incident__in=incidents.values("pk"))
    runs: Any = Session.objects.filter(cycle__in=cycles.values("cycle")).order_by()
    together = runs.annotate(all=Value(1)).values("all").annotate(total=Sum("cost_usd"))
    return Subquery(together.values("total"))


def failed_remedies(events: Iterable[IncidentEvent]) -> tuple[str, ...]:
    """Return the fixes that failed, newest last."""
    return tuple(event.text for event in events if event.kind == Step.DID_NOT_HOLD and event.text)


def remedies_that_failed(cycle: Cycle) -> list[str]:
    """Return all failed fixes for the causes of a cycle's incidents."""
    own = cycle.incidents.all()
    of_these = IncidentEvent.objects.filter(
        kind=Step.DID_NOT_HOLD,
        incident__scope__in=own.values("scope"),
        incident__cause__in=own.values("cause"),
    )
    return list(of_these.exclude(text="").order_by("pk").values_list("text", flat=True))


def linked_incidents(incident: Incident, opened_by: int | None) -> IncidentQuerySet:
    """Select the other incidents that the same cycle opened: they may have one cause."""
    same = IncidentEvent.objects.filter(kind=Step.OPENED, cycle=opened_by, cycle__isnull=False)
    others = Incident.objects.filter(pk__in=same.values("incident")).exclude(pk=incident.pk)
    return others.select_related("watch", "owner").order_by("pk")


def unresolved_incidents() -> IncidentQuerySet:
    """Select unresolved incidents, the most severe and then the oldest first."""
    rows = Incident.objects.filter(state__in=Incident.UNRESOLVED_STATES)
    return rows.select_related("watch", "owner").order_by("-severity", "first_seen_at", "pk")


EVENTS_SEARCHED = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundByCount:
    """Number of incidents by who found them, and how long it took to notice them."""

    found_by: str
    count: int
    notice_seconds: float | None
    """Median; None where nobody knows when the failure began."""


def found_by_counts(since: datetime) -> tuple[FoundByCount, ...]:
    """Return how the latest incidents of a period were found, without drills."""
    rows = Incident.objects.filter(first_seen_at__gte=since, drill="").order_by("-pk")
    waits: dict[str, list[float | None]] = {}
    for found_by, seen, began in rows.values_list("found_by", "first_seen_at", "began_at")[
        :LOOKED_AT
    ]:
        took = max(0.0, (seen - began).total_seconds()) if began else None
        waits.setdefault(found_by, []).append(took)
    return tuple(
        FoundByCount(
            found_by=label,
            count=len(waits[value]),
            notice_seconds=median(known) if known else None,
        )
        for value, label in Incident.FoundBy.choices
        if value in waits
        for known in [[took for took in waits[value] if took is not None]]
    )


def disagreements(since: datetime) -> list[dict[str, Any]]:
    """Return how often a report said healthy while a probe said down, by tier and model.

    Only the latest events are searched, along the index that leaves out `seen`.
    """
    latest = IncidentEvent.objects.exclude(kind=Step.SEEN).order_by("-pk").values("pk")
    rows = IncidentEvent.objects.filter(
        pk__in=latest[:EVENTS_SEARCHED], kind=Step.CONTRADICTED, at__gte=since
    )
    counted = rows.values("session__tier", "session__model").annotate(times=Count("pk"))
    return [
        {"tier": row["session__tier"], "model": row["session__model"], "times": row["times"]}
        for row in counted.order_by("session__tier", "session__model")
    ]
