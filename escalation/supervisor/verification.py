"""Verifies fixes: a later Tier 1 cycle, which knows nothing of the fix, looks at the services.

Where a probe had seen the problem, the probes of the service decide within seconds instead
(`settle_by_probes` of `incidents/recorder.py`, called by the loop of the probes).

Each verification is started once: the transaction that queues the cycle also marks its incidents
as started. `incidents/recorder` records the result like that of any other cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone

from escalation.errors import OperationRefused
from escalation.incidents import recorder
from escalation.queue import installation_lock
from escalation.supervisor import cycles
from sessions_app.models import Cycle, Incident, PauseSwitch, Watch
from sessions_app.tiers import LOWEST_TIER

State = Incident.State
CLOCKS_DIFFER = timedelta(minutes=1)
Begin = Callable[[], Cycle]


class TakenMeanwhile(Exception):
    """Another process has started this verification."""


def due() -> QuerySet[Incident]:
    """Returns the incidents whose verification is due, also if the clock was set back."""
    now = timezone.now()
    latest = now + timedelta(seconds=settings.CLAUDEOPS_VERIFY_AFTER) + CLOCKS_DIFFER
    when = Q(verify_at__lte=now) | Q(verify_at__gt=latest)
    return Incident.objects.filter(when, state=State.VERIFYING)


def due_for_cycle() -> QuerySet[Incident]:
    """Returns the incidents that a cycle has to verify: those that no probe had seen."""
    by_probes = [incident.pk for incident in due() if recorder.probes_that_saw(incident)]
    return due().exclude(pk__in=by_probes)


def verify_due() -> list[Cycle]:
    """Starts due verifications, also of a paused watch: it only looks, and a fix that nothing
    verified would stay so. The pause of everything and an active cycle delay them."""
    recorder.note_unverifiable(due().filter(watch=None, drill=""), "The watch was removed.")
    if PauseSwitch.is_on():
        return []
    waiting = due_for_cycle()
    watches = Watch.objects.filter(pk__in=waiting.values("watch"))
    started = (verify_watch(watch) for watch in watches)
    return [cycle for cycle in started if cycle is not None]


def verify_watch(watch: Watch) -> Cycle | None:
    """Starts one cycle for all due fixes of a watch. Returns None if it has to wait."""

    def begin() -> Cycle:
        return cycles.start(
            watch,
            trigger=Cycle.Trigger.VERIFICATION,
            max_tier=LOWEST_TIER,
        )

    return taking(due_for_cycle().filter(watch=watch), begin)


def taking(incidents: QuerySet[Incident], begin: Begin) -> Cycle | None:
    """Starts a cycle and marks its incidents, in one transaction."""
    try:
        with installation_lock():
            cycle = begin()
            _take(incidents, cycle)
    except (OperationRefused, TakenMeanwhile):
        # A spent budget delays the verification, like any other cycle.
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
