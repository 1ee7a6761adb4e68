"""List of services that reports have named, worst first, and the history bars."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.db.models import Q, QuerySet
from django.http import QueryDict

from escalation.web.lists import address_without_page, position_in
from sessions_app.models import Cycle, Incident, ServiceState, Watch
from sessions_app.models.incident import KEPT, NOT_LOOKED_AT, Mark, read_marks

# History bars: one mark for each cycle, oldest first.

LOOKS = {"healthy": "good", "fixed": "good", "degraded": "warn", "unknown": "warn", "down": "bad"}
OUTCOME_LOOKS: dict[str, str] = {
    Cycle.Outcome.HEALTHY: "good",
    Cycle.Outcome.FIXED: "good",
    Cycle.Outcome.NEEDS_PERSON: "warn",
    Cycle.Outcome.COULD_NOT_RUN: "bad",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryMark:
    cycle: int
    word: str
    look: str
    """One of good, warn, bad, live and none; sets colour and height."""
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryBar:
    marks: tuple[HistoryMark, ...]

    @property
    def sentence(self) -> str:
        """Returns the text alternative of the bar."""
        counts = Counter(mark.word for mark in self.marks)
        words = ", ".join(f"{count} {word}" for word, count in counts.most_common())
        cycles = "cycle" if len(self.marks) == 1 else f"{len(self.marks)} cycles"
        return f"The last {cycles}: {words}." if words else "No cycle yet."


def history_bar_of_cycles(cycles: Iterable[Cycle]) -> HistoryBar:
    """Shows the outcome of each cycle, or its state while it is active."""
    return HistoryBar(
        marks=tuple(
            HistoryMark(
                cycle=cycle.pk,
                word=cycle.result_text,
                look="live" if cycle.is_active else OUTCOME_LOOKS.get(cycle.result, "none"),
                at=cycle.created_at,
            )
            for cycle in cycles
        )
    )


def history_bar_of_service(state: ServiceState) -> HistoryBar:
    """Shows the last cycles that named the service."""
    return HistoryBar(marks=tuple(_mark(mark) for mark in read_marks(state.marks)[-KEPT:]))


def history_bar_beside(state: ServiceState, cycles: Sequence[Cycle]) -> HistoryBar:
    """Shows one mark for each given cycle, whether it named the service or not."""
    said = {mark.cycle: mark for mark in read_marks(state.marks)}
    return HistoryBar(
        marks=tuple(
            _mark(said[cycle.pk])
            if cycle.pk in said
            else HistoryMark(cycle=cycle.pk, word=NOT_LOOKED_AT, look="none", at=cycle.created_at)
            for cycle in cycles
        )
    )


def _mark(mark: Mark) -> HistoryMark:
    return HistoryMark(
        cycle=mark.cycle,
        word=mark.status,
        look=LOOKS.get(mark.status, "none"),
        at=datetime.fromtimestamp(mark.at, UTC),
    )


PER_PAGE = 20
UNWELL = "unwell"


class ServiceFilter(forms.Form):
    """Filters of the list; invalid values are ignored."""

    watch = forms.ModelChoiceField(Watch.objects.all(), required=False, empty_label="All watches")
    status = forms.ChoiceField(
        required=False,
        choices=[("", "Any status"), (UNWELL, "not healthy"), *ServiceState.Status.choices],
    )

    @property
    def chosen(self) -> dict[str, Any]:
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    def apply(self, states: QuerySet[ServiceState]) -> QuerySet[ServiceState]:
        chosen = self.chosen
        if watch := chosen.get("watch"):
            states = states.filter(watch=watch)
        status = chosen.get("status")
        if status == UNWELL:
            return states.filter(place__lt=ServiceState.place_of(ServiceState.Status.HEALTHY))
        # By its place, the first column of the list's index.
        return states.filter(place=ServiceState.place_of(status)) if status else states


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceLine:
    state: ServiceState
    history_bar: HistoryBar
    incidents: tuple[Incident, ...]
    """Unresolved incidents."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceList:
    form: ServiceFilter
    lines: tuple[ServiceLine, ...]
    address: str
    older: int | None
    """Key of the last line, if more follow."""
    is_first: bool


def load_services(parameters: QueryDict) -> ServiceList:
    form = ServiceFilter(parameters, label_suffix="")
    found = form.apply(ServiceState.objects.select_related("watch"))
    last = position_in(parameters).before
    rows = list(_following(found, last).order_by("place", "service", "id")[: PER_PAGE + 1])
    shown = rows[:PER_PAGE]
    incidents = _unresolved(shown)
    return ServiceList(
        form=form,
        lines=tuple(
            ServiceLine(
                state=state,
                history_bar=history_bar_of_service(state),
                incidents=tuple(incidents[state.watch_id, state.service]),
            )
            for state in shown
        ),
        address=address_without_page(parameters),
        older=shown[-1].pk if len(rows) > PER_PAGE else None,
        is_first=last is None,
    )


def _following(states: QuerySet[ServiceState], last: int | None) -> QuerySet[ServiceState]:
    """Returns services after a line, or all if the line no longer exists."""
    line = ServiceState.objects.filter(pk=last).first() if last is not None else None
    if line is None:
        return states
    return states.filter(
        Q(place__gt=line.place)
        | Q(place=line.place, service__gt=line.service)
        | Q(place=line.place, service=line.service, pk__gt=line.pk)
    )


def _unresolved(
    states: Sequence[ServiceState],
) -> defaultdict[tuple[int, str], list[Incident]]:
    found: defaultdict[tuple[int, str], list[Incident]] = defaultdict(list)
    rows = Incident.objects.filter(
        state__in=Incident.UNRESOLVED_STATES,
        kind=Incident.Kind.PROBLEM,
        watch__in={state.watch_id for state in states},
        cause__in={state.service for state in states},
    )
    for incident in rows.defer("detail"):
        found[incident.watch_id or 0, incident.cause].append(incident)
    return found
