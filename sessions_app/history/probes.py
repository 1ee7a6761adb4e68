"""Probes of a watch by the service that they look at."""

from __future__ import annotations

from collections.abc import Iterable

from sessions_app.history.services import one_spelling
from sessions_app.models import Probe


def by_service(probes: Iterable[Probe]) -> dict[str, list[Probe]]:
    """Return probes by the normalised name of their service, which is the cause of incidents."""
    found: dict[str, list[Probe]] = {}
    for probe in probes:
        found.setdefault(one_spelling(probe.service), []).append(probe)
    return found


def failing_by_service(watch: int) -> dict[str, list[Probe]]:
    """Return the probes of a watch that are down and not held back, by service."""
    return by_service(Probe.objects.failing().filter(watch=watch))


def is_down(watch: int, service: str) -> bool:
    """Return True if any probe of a service is down, also one that is held back."""
    down = Probe.objects.filter(watch=watch, state=Probe.State.DOWN)
    return one_spelling(service) in by_service(down)
