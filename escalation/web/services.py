"""All services that reports have named, the worst first: a fixed number of queries at any size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.db.models import Q, QuerySet
from django.http import QueryDict

from sessions_app.models import Incident, ServiceState, Watch
from sessions_app.pages.filters import address_without_page
from sessions_app.pages.keyset import position_in
from sessions_app.pages.strips import Strip, strip_of_service

PER_PAGE = 20
UNWELL = "unwell"


class ServiceFilter(forms.Form):
    """A filter that makes no sense is left out, not an error."""

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
        # By its place, which the index of the list begins with.
        return states.filter(place=ServiceState.place_of(status)) if status else states


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceLine:
    state: ServiceState
    strip: Strip
    incidents: tuple[Incident, ...]
    """Those that are not over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceList:
    form: ServiceFilter
    lines: tuple[ServiceLine, ...]
    address: str
    older: int | None
    """The number of the last line, where more follow."""
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
                strip=strip_of_service(state),
                incidents=tuple(incidents[state.watch_id, state.service]),
            )
            for state in shown
        ),
        address=address_without_page(parameters),
        older=shown[-1].pk if len(rows) > PER_PAGE else None,
        is_first=last is None,
    )


def _following(states: QuerySet[ServiceState], last: int | None) -> QuerySet[ServiceState]:
    """Those after a line; all where it is not there any more."""
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
