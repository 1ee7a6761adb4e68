"""How each service is, made anew from the reports, and held against them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from sessions_app.models import Cycle, ServiceState, Session
from sessions_app.models.service_marks import KEPT
from sessions_app.models.service_state import Said
from sessions_app.reading.plain_text import one_line
from sessions_app.reading.service_names import one_spelling

AT_ONCE = 500
Purpose = Session.Purpose
# Their word is no part of a round: a question, another approach beside it, a plan.
SIDE_RUNS = (Purpose.FOLLOW_UP, Purpose.FORK, Purpose.PLAN)
Key = tuple[int, str]


def rebuild_services() -> None:
    """The caller holds a transaction."""
    ServiceState.objects.all().delete()
    ServiceState.objects.bulk_create(_anew().values(), batch_size=AT_ONCE)


def differing_services() -> Iterator[str]:
    """A sentence for each that is stored otherwise than the reports say. Rounds with a run beside
    the chain are left out: whether it counted depends on what was ended last.

    Counted without what keeps the marks, or a mistake there would agree with itself."""
    stored = {(row.watch_id, row.service): row.marks for row in ServiceState.objects.all()}
    beside = set(
        Session.objects.filter(purpose__in=(Purpose.FORK, Purpose.PLAN)).values_list(
            "cycle", flat=True
        )
    )
    true: defaultdict[Key, list[tuple[int, str]]] = defaultdict(list)
    for cycle, reports in _rounds():
        for service, words in _said(reports).items():
            true[cycle.watch_id or 0, service].append((cycle.pk, words.status))
    for key in sorted({*stored, *true}):
        kept = [(number, status) for number, status, _at in stored.get(key, [])]
        kept, said = _without(kept, beside), _without(true[key][-KEPT:], beside)
        if kept != said:
            watch, service = key
            yield (
                f"watch {watch}, {service}: stored {_last(kept)}, the reports give {_last(said)}"
            )


def _anew() -> dict[Key, ServiceState]:
    states: dict[Key, ServiceState] = {}
    for cycle, reports in _rounds():
        for service, said in _said(reports).items():
            key = (cycle.watch_id or 0, service)
            states[key] = ServiceState.after(states.get(key), cycle, service, said)
    return states


def _rounds() -> Iterator[tuple[Cycle, list[Any]]]:
    """Every round of a watch that is there, in their order, with what its reports say."""
    ended = Session.objects.filter(
        cycle__state=Cycle.State.FINISHED, cycle__watch__isnull=False, report__isnull=False
    ).exclude(purpose__in=SIDE_RUNS)
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


def _said(reports: Iterable[Any]) -> dict[str, Said]:
    """Of each service the latest word, and of two in one report the worse."""
    latest: dict[str, Said] = {}
    for services in reports:
        by_name: defaultdict[str, list[Said]] = defaultdict(list)
        for service in services if isinstance(services, list) else []:
            by_name[one_spelling(service["name"])].append(
                Said(
                    name=one_line(service["name"], ServiceState.LONGEST_NAME),
                    status=service["status"],
                    detail=one_line(service.get("detail", ""), ServiceState.LONGEST_DETAIL),
                )
            )
        latest |= {name: min(said, key=_place) for name, said in by_name.items()}
    return latest


def _place(said: Said) -> int:
    known = said.status in ServiceState.Status.values
    return ServiceState.place_of(said.status if known else ServiceState.Status.UNKNOWN)


def _without(marks: list[tuple[int, str]], cycles: set[int]) -> list[tuple[int, str]]:
    return [mark for mark in marks if mark[0] not in cycles]


def _last(marks: list[tuple[int, str]]) -> str:
    if not marks:
        return "nothing"
    cycle, status = marks[-1]
    return f"{status} in cycle {cycle} ({len(marks)} rounds)"
