"""The list of watches, as plain values: four queries for any number."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, F, OuterRef, Subquery

from sessions_app.models import Cycle, Incident, Watch


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchRow:
    watch: Watch
    last: Cycle | None
    """The latest cycle that has ended."""
    active: Cycle | None
    unresolved: int


def load_watches() -> tuple[WatchRow, ...]:
    own = Cycle.objects.filter(watch=OuterRef("pk")).order_by("-id").values("pk")
    ended = own.filter(state=Cycle.State.FINISHED)[:1]
    watches = list(
        Watch.objects.select_related("schedule")
        .annotate(last_cycle=Subquery(ended))
        .order_by(F("enabled").desc(), "name")
    )
    last = Cycle.objects.in_bulk([watch.last_cycle for watch in watches if watch.last_cycle])
    active = {
        cycle.watch_id: cycle for cycle in Cycle.objects.filter(state__in=Cycle.ACTIVE_STATES)
    }
    unresolved = _unresolved()
    return tuple(
        WatchRow(
            watch=watch,
            last=last.get(watch.last_cycle),
            active=active.get(watch.pk),
            unresolved=unresolved.get(watch.pk, 0),
        )
        for watch in watches
    )


def _unresolved() -> dict[int | None, int]:
    open_ones = Incident.objects.filter(state__in=Incident.UNRESOLVED_STATES, watch__isnull=False)
    counted = open_ones.order_by().values_list("watch").annotate(count=Count("pk"))
    return dict(counted)
