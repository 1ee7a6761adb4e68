"""What the pages of incidents show, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils import timezone

from sessions_app.access.roles import Right, accounts_that_may
from sessions_app.models import Incident, IncidentEvent, Watch
from sessions_app.pages.changes_page import ChangeRow, changes_of_incident
from sessions_app.pages.filters import address_without_page
from sessions_app.pages.inbox import InboxRow, row_of
from sessions_app.pages.keyset import KeysetPage, page_of, position_in
from sessions_app.reading.incident_figures import (
    ChainCost,
    IncidentCost,
    IncidentFigures,
    cost_of,
    failed_remedies,
    figures_since,
)
from sessions_app.reading.incident_text import LONGEST_NOTE, SNOOZES, backing_off, wish_of

PER_PAGE, MOST_UNRESOLVED = 30, 100
SIMILAR_SHOWN = 8
LOOKED_AT = 5_000
"""Incidents before and after one, among which similar ones are looked for."""
LONGEST_STORY = 1_000
FIGURES_OVER = timedelta(days=30)
Step = IncidentEvent.Kind
UNRESOLVED = "unresolved"


class IncidentFilter(forms.Form):
    """A filter that makes no sense is left out, not an error."""

    state = forms.ChoiceField(
        required=False,
        choices=[("", "Any state"), (UNRESOLVED, "unresolved"), *Incident.State.choices],
    )
    kind = forms.ChoiceField(required=False, choices=[("", "Any kind"), *Incident.Kind.choices])
    watch = forms.ModelChoiceField(Watch.objects.all(), required=False, empty_label="All watches")
    drill = forms.ChoiceField(
        label="Drills", required=False, choices=[("", "Without drills"), ("yes", "Only drills")]
    )

    @property
    def chosen(self) -> dict[str, Any]:
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    def apply(self, incidents: QuerySet[Incident]) -> QuerySet[Incident]:
        chosen = self.chosen
        is_drill = chosen.pop("drill", "")
        incidents = incidents.exclude(drill="") if is_drill else incidents.filter(drill="")
        if chosen.get("state") in {UNRESOLVED, Incident.State.RESOLVED}:
            del chosen["state"]  # each half of the list is one of them by itself
        return incidents.filter(**chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentList:
    form: IncidentFilter
    unresolved: tuple[InboxRow, ...]
    has_more_unresolved: bool
    page: KeysetPage[Incident]
    rows: tuple[InboxRow, ...]
    """Those of the page: they are over."""
    figures: IncidentFigures
    address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StoryLine:
    """One step of the story, or several of the same in a row."""

    event: IncidentEvent
    times: int = 1
    until: datetime | None = None
    """When the last of them was."""
    chain: ChainCost | None = None
    """What its chain cost, where the story comes to that chain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentPage:
    incident: Incident
    wish: str
    backing_off: str
    story: tuple[StoryLine, ...]
    is_cut: bool
    """Only the last steps of a long story are shown."""
    cost: IncidentCost
    changes: tuple[ChangeRow, ...]
    failed_remedies: tuple[str, ...]
    similar: tuple[Incident, ...]
    """Others of the same cause, newest first: is it flaky, and is it so elsewhere?"""
    hands: tuple[User, ...]
    """Who it can be given to."""
    snoozes: dict[str, str]
    longest_note: int

    @property
    def time_to_repair(self) -> timedelta | None:
        ended = self.incident.resolved_at
        return ended - self.incident.first_seen_at if ended else None


def load_incidents(parameters: QueryDict) -> IncidentList:
    """What is not over comes first, the worst on top; then, page by page, what is."""
    form = IncidentFilter(parameters, label_suffix="")
    position = position_in(parameters)
    found = form.apply(Incident.objects.select_related("watch", "owner"))
    page = page_of(_over(found, form), position, PER_PAGE)
    unresolved = list(_not_over(found, form)[: MOST_UNRESOLVED + 1]) if page.is_first else []
    return IncidentList(
        form=form,
        unresolved=tuple(map(row_of, unresolved[:MOST_UNRESOLVED])),
        has_more_unresolved=len(unresolved) > MOST_UNRESOLVED,
        page=page,
        rows=tuple(map(row_of, page.rows)),
        figures=figures_since(timezone.now() - FIGURES_OVER),
        address=address_without_page(parameters),
    )


def _not_over(found: QuerySet[Incident], form: IncidentFilter) -> QuerySet[Incident]:
    if form.chosen.get("state") == Incident.State.RESOLVED:
        return found.none()
    return found.filter(state__in=Incident.UNRESOLVED_STATES).order_by("-severity", "-pk")


def _over(found: QuerySet[Incident], form: IncidentFilter) -> QuerySet[Incident]:
    """Almost all are over, so they are read along their numbers and not by their state."""
    if form.chosen.get("state") not in {None, Incident.State.RESOLVED}:
        return found.none()
    return found.exclude(state__in=Incident.UNRESOLVED_STATES)


def load_incident(incident: Incident, rights: frozenset[Right]) -> IncidentPage:
    may_handle = Right.HANDLE_INCIDENTS in rights
    latest = incident.events.select_related("by").order_by("-pk")[: LONGEST_STORY + 1]
    events = list(latest)[:LONGEST_STORY][::-1]
    cost = cost_of(incident)
    return IncidentPage(
        incident=incident,
        wish=wish_of(incident),
        backing_off=backing_off(incident).strip(),
        story=tuple(with_costs(told(events), cost)),
        is_cut=len(latest) > LONGEST_STORY,
        cost=cost,
        changes=changes_of_incident(incident),
        failed_remedies=failed_remedies(events),
        similar=_similar(incident),
        hands=tuple(accounts_that_may(Right.HANDLE_INCIDENTS)) if may_handle else (),
        snoozes=SNOOZES,
        longest_note=LONGEST_NOTE,
    )


def told(events: Iterable[IncidentEvent]) -> list[StoryLine]:
    """In order; sightings in a row that say the same are one line."""
    lines: list[StoryLine] = []
    for event in events:
        last = lines[-1] if lines else None
        if last and event.kind == Step.SEEN == last.event.kind and event.text == last.event.text:
            lines[-1] = StoryLine(event=last.event, times=last.times + 1, until=event.at)
        else:
            lines.append(StoryLine(event=event))
    return lines


def with_costs(lines: Iterable[StoryLine], cost: IncidentCost) -> Iterator[StoryLine]:
    """What each chain cost stands where the story comes to it, once."""
    told_of = set()
    for line in lines:
        cycle = line.event.cycle_id
        is_new = cycle is not None and cycle not in told_of
        told_of.add(cycle)
        yield replace(line, chain=cost.chains.get(cycle)) if cycle and is_new else line


def _similar(incident: Incident) -> tuple[Incident, ...]:
    near = (incident.pk - LOOKED_AT, incident.pk + LOOKED_AT)
    same = Incident.objects.filter(
        kind=incident.kind, cause=incident.cause, drill=incident.drill, pk__range=near
    )
    others = same.exclude(pk=incident.pk).select_related("watch").order_by("-pk")
    return tuple(others[:SIMILAR_SHOWN])
