"""Names of services, probes by service, and the rebuild of `ServiceState` from reports."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from sessions_app.models import Cycle, Probe, ServiceState, Session
from sessions_app.models.incident import KEPT, ReportedService
from sessions_app.text import clean, one_line

LONGEST = 200
UNNAMED = "unnamed"
AROUND_NAMES = " \t\n\"'`#/"
BETWEEN_WORDS = re.compile(r"[\s_]+")


def one_spelling(name: str) -> str:
    """Normalise the name of a service: `"Web_Shop"` and `/web-shop.service` become `web-shop`.

    Only case, quotes, spaces, the slash of Docker and the suffix of systemd are ignored, because
    two services must never get the same name.
    """
    text = unicodedata.normalize("NFKC", clean(name)).casefold()
    text = BETWEEN_WORDS.sub("-", text.strip(AROUND_NAMES))
    text = text.removesuffix(".service").strip("-#/") or UNNAMED
    if len(text) <= LONGEST:
        return text
    # A hash keeps long names distinct.
    rest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    return f"{text[: LONGEST - len(rest) - 1]}-{rest}"


def display_name(name: str) -> str:
    """Return the name of a service as pages show it: `Web Shop` for `"/Web Shop.service"`."""
    text = one_line(clean(name), LONGEST).strip(AROUND_NAMES)
    return text.removesuffix(".service").strip(AROUND_NAMES) or UNNAMED


AT_ONCE = 500
Key = tuple[int, str]


def rebuild_services() -> None:
    """Compute all service states from the reports. The caller opens a transaction."""
    ServiceState.objects.all().delete()
    ServiceState.objects.bulk_create(_computed().values(), batch_size=AT_ONCE)


def differing_services() -> Iterator[str]:
    """Yield a message for each service state that differs from the reports.

    Does not use the code that maintains the marks, which it has to check.
    """
    stored = {(row.watch_id, row.service): row.marks for row in ServiceState.objects.all()}
    true: defaultdict[Key, list[tuple[int, str]]] = defaultdict(list)
    for cycle, reports in _cycles():
        for service, words in _said(reports).items():
            true[cycle.watch_id or 0, service].append((cycle.pk, words.status))
    for key in sorted({*stored, *true}):
        kept = [(number, status) for number, status, _at in stored.get(key, [])]
        said = true[key][-KEPT:]
        if kept != said:
            watch, service = key
            yield (
                f"watch {watch}, {service}: stored {_last(kept)}, the reports give {_last(said)}"
            )


def _computed() -> dict[Key, ServiceState]:
    states: dict[Key, ServiceState] = {}
    for cycle, reports in _cycles():
        for service, said in _said(reports).items():
            key = (cycle.watch_id or 0, service)
            states[key] = ServiceState.after(states.get(key), cycle, service, said)
    return states


def _cycles() -> Iterator[tuple[Cycle, list[Any]]]:
    """Yield the finished cycles of existing watches in order, with the services of the reports."""
    ended = Session.objects.evidence().filter(
        cycle__state=Cycle.State.FINISHED, cycle__watch__isnull=False, report__isnull=False
    )
    rows = ended.order_by("cycle_id", "pk").values_list(
        "cycle_id", "cycle__watch_id", "cycle__created_at", "report__services"
    )
    current: Cycle | None = None
    reports: list[Any] = []
    for number, watch, created_at, services in rows.iterator():
        if current is None or current.pk != number:
            if current is not None:
                yield current, reports
            current, reports = Cycle(pk=number, watch_id=watch, created_at=created_at), []
        reports.append(services)
    if current is not None:
        yield current, reports


def _said(reports: Iterable[Any]) -> dict[str, ReportedService]:
    """Return the latest status of each service, the worse of two in one report."""
    latest: dict[str, ReportedService] = {}
    for services in reports:
        by_name: defaultdict[str, list[ReportedService]] = defaultdict(list)
        for service in services if isinstance(services, list) else []:
            by_name[one_spelling(service["name"])].append(
                ReportedService(
                    name=display_name(service["name"]),
                    status=service["status"],
                    detail=one_line(service.get("detail", ""), ServiceState.LONGEST_DETAIL),
                )
            )
        latest |= {name: min(said, key=_place) for name, said in by_name.items()}
    return latest


def _place(said: ReportedService) -> int:
    known = said.status in ServiceState.Status.values
    return ServiceState.place_of(said.status if known else ServiceState.Status.UNKNOWN)


def _last(marks: list[tuple[int, str]]) -> str:
    if not marks:
        return "nothing"
    cycle, status = marks[-1]
    return f"{status} in cycle {cycle} ({len(marks)} cycles)"


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
