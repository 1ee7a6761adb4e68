"""The cards of the watches, the worst first: how the last rounds of each went, and what is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Any

from django.db.models import QuerySet

from sessions_app.models import Cycle, Incident, Watch
from sessions_app.reading.rounds import STOPPED, Round, cost_per_round, rounds_in, with_rounds

WELL = frozenset({*Cycle.GOOD_OUTCOMES, STOPPED})


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchCard:
    watch: Watch
    rounds: tuple[Round, ...]
    """The last of them, oldest first."""
    last: Cycle | None
    """The latest cycle that has ended."""
    active: Cycle | None
    incidents: tuple[Incident, ...]
    """Unresolved, the worst first."""

    @property
    def worst(self) -> Incident | None:
        return self.incidents[0] if self.incidents else None

    @property
    def cost_per_round(self) -> Decimal | None:
        return cost_per_round(self.rounds)

    @property
    def last_round(self) -> Round | None:
        return next((one for one in reversed(self.rounds) if one.is_over), None)

    @property
    def summary(self) -> str:
        """The strip in words, for those who do not see it: "38 healthy, 2 fixed"."""
        counted = Counter(
            STOPPED if one.kind == STOPPED else one.word for one in reversed(self.rounds)
        )
        return ", ".join(f"{number} {word}" for word, number in counted.items())

    @property
    def tried_again_at(self) -> datetime | None:
        """When the schedule starts a watch again that is backed off."""
        until, schedule = self.watch.backed_off_until, self.watch.schedule
        if until is None or schedule is None or not self.watch.enabled:
            return None
        if self.watch.cron:
            return until  # the breaker chose one of the due times
        return first_due(until, schedule.next_run, self.watch.interval_minutes)

    @property
    def rank(self) -> tuple[int, bool, bool, str]:
        """By what is wrong now, then by how the last round went, then what is on."""
        asking = max((int(one.severity) for one in self.incidents), default=0)
        last = self.last_round
        went_well = last is None or last.kind in WELL
        return -asking, went_well, not self.watch.enabled, self.watch.name.lower()


def first_due(after: datetime, next_run: datetime, interval_minutes: int) -> datetime:
    """The first of the times that an interval gives which is not before a moment."""
    interval = timedelta(minutes=interval_minutes)
    return next_run + max(0, ceil((after - next_run) / interval)) * interval


def watches_with_rounds() -> QuerySet[Watch, Any]:
    return with_rounds(Watch.objects.select_related("schedule"))


def latest_ended(watches: Iterable[Any]) -> list[int]:
    """Numbers of the cycles that the cards tell the reasons of."""
    ended = ([one for one in rounds_in(watch.last_rounds) if one.is_over] for watch in watches)
    return [rounds[-1].cycle for rounds in ended if rounds]


def watch_cards(
    watches: Iterable[Any], cycles: Mapping[int, Cycle], unresolved: Iterable[Incident]
) -> tuple[WatchCard, ...]:
    incidents = list(unresolved)
    under_way = {cycle.watch_id: cycle for cycle in cycles.values() if cycle.is_active}
    cards = (
        _card(
            watch,
            cycles,
            under_way.get(watch.pk),
            tuple(one for one in incidents if one.watch_id == watch.pk and not one.drill),
        )
        for watch in watches
    )
    return tuple(sorted(cards, key=lambda card: card.rank))


def _card(
    watch: Any,
    cycles: Mapping[int, Cycle],
    active: Cycle | None,
    incidents: tuple[Incident, ...],
) -> WatchCard:
    rounds = rounds_in(watch.last_rounds)
    ended = [one.cycle for one in rounds if one.is_over]
    return WatchCard(
        watch=watch,
        rounds=rounds,
        last=cycles.get(ended[-1]) if ended else None,
        active=active,
        incidents=incidents,
    )
