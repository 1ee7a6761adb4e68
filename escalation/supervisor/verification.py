"""Does the fix hold? After a while a fresh Tier 1 round looks, and is told nothing of a fix.

It is started once, whatever dies: the incidents are taken from the list of what is due in the
transaction that queues the round. What the round finds is entered as that of any other
(`incidents/book`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from escalation.errors import CycleActive, OperationRefused
from escalation.incidents import book
from escalation.next_step import cycles
from escalation.next_step.cycles import Enqueue
from escalation.queue.one_at_a_time import one_at_a_time
from escalation.tiers import LOWEST_TIER
from sessions_app.models import Cycle, Incident, PauseSwitch, Watch

State = Incident.State
CLOCKS_DIFFER = timedelta(minutes=1)
Begin = Callable[[], Cycle]


class TakenMeanwhile(Exception):
    """Another process has started this verification."""


def due() -> QuerySet[Incident]:
    """Also what is further away than any fix is left alone: the clock was set back."""
    now = timezone.now()
    latest = now + timedelta(seconds=settings.CLAUDEOPS_VERIFY_AFTER) + CLOCKS_DIFFER
    when = Q(verify_at__lte=now) | Q(verify_at__gt=latest)
    return Incident.objects.filter(when, state=State.VERIFYING)


def verify_due(enqueue: Enqueue) -> list[Cycle]:
    """The rounds that were started. A paused watch and an active cycle are waited for."""
    book.note_unverifiable(due().filter(watch=None, drill=""), "The watch was removed.")
    if PauseSwitch.is_on():
        return []
    watches = Watch.objects.filter(enabled=True, pk__in=due().values("watch"))
    started = (verify_watch(watch, enqueue) for watch in watches)
    return [cycle for cycle in started if cycle is not None]


def verify_watch(watch: Watch, enqueue: Enqueue) -> Cycle | None:
    """One round for all of its fixes that are due; None where it has to wait."""

    def begin() -> Cycle:
        return cycles.start(
            watch,
            trigger=Cycle.Trigger.VERIFICATION,
            enqueue=enqueue,
            max_tier=LOWEST_TIER,
        )

    return taking(due().filter(watch=watch), begin)


def taking(incidents: QuerySet[Incident], begin: Begin) -> Cycle | None:
    """Begin a round for these and take them off the list, both or neither."""
    try:
        with transaction.atomic():
            cycle = begin()
            # Only now: who holds it must not wait for a cycle of the same watch to end.
            with one_at_a_time():
                _take(incidents, cycle)
    except (CycleActive, OperationRefused, TakenMeanwhile):
        # A spent budget is one of the refusals: the look waits, like every other round.
        return None
    return cycle


def _take(incidents: QuerySet[Incident], cycle: Cycle) -> None:
    numbers = list(incidents.values_list("pk", flat=True))
    if not incidents.filter(pk__in=numbers).update(verify_at=None, last_cycle=cycle):
        raise TakenMeanwhile
    link = Incident.cycles.through
    link.objects.bulk_create(
        (link(incident_id=number, cycle_id=cycle.pk) for number in numbers), ignore_conflicts=True
    )
