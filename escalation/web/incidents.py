"""Pages of incidents: the list, one incident with its timeline, and the actions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.errors import OperationRefused, RefusalCode
from escalation.incidents import recorder
from escalation.web.changes import ChangeRow, rows_of
from escalation.web.lists import DrillSwitch, KeysetPage, address_without_page, page_of, position_in
from escalation.web.overview import InboxRow, row_of
from escalation.web.responses import HtmxRequest, back_or_to, wants_fragment
from escalation.web.sessions import OfferedActions, last_worker, offered_actions
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, accounts_that_may, rights_of
from sessions_app.history.chain import chain_of_cycle
from sessions_app.history.incidents import (
    LONGEST_NOTE,
    SNOOZES,
    FoundByCount,
    IncidentCost,
    IncidentFigures,
    TimelineEntry,
    approvals_of,
    backing_off,
    changes_of,
    cost_of,
    disagreements,
    failed_remedies,
    figures_since,
    found_by_counts,
    linked_incidents,
    postmortem,
    sentence_of,
    snooze_until,
    time_to_repair,
    timeline,
    wish_of,
)
from sessions_app.models import Incident, IncidentEvent, ServiceState, Watch
from sessions_app.models.installation import moment_text

PER_PAGE, MOST_UNRESOLVED = 30, 100
SIMILAR_SHOWN = 8
LOOKED_AT = 5_000
"""Incidents before and after one that are searched for similar ones."""
LONGEST_STORY = 1_000
FIGURES_OVER = timedelta(days=30)
Step = IncidentEvent.Kind
UNRESOLVED = "unresolved"
NO_CHANGE = 204
NEXT_TIER = ("escalate_session", "allow_session")


class IncidentFilter(forms.Form):
    """Filters of the list; invalid values are ignored."""

    state = forms.ChoiceField(
        required=False,
        choices=[("", "Any state"), (UNRESOLVED, "unresolved"), *Incident.State.choices],
    )
    kind = forms.ChoiceField(required=False, choices=[("", "Any kind"), *Incident.Kind.choices])
    watch = forms.ModelChoiceField(Watch.objects.all(), required=False, empty_label="All watches")
    drill = DrillSwitch()

    @property
    def chosen(self) -> dict[str, Any]:
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    def apply(self, incidents: QuerySet[Incident]) -> QuerySet[Incident]:
        chosen = self.chosen
        is_drill = chosen.pop("drill", "")
        incidents = incidents.exclude(drill="") if is_drill else incidents.filter(drill="")
        if chosen.get("state") in {UNRESOLVED, Incident.State.RESOLVED}:
            del chosen["state"]  # each half of the list has one state only
        return incidents.filter(**chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentList:
    form: IncidentFilter
    unresolved: tuple[InboxRow, ...]
    has_more_unresolved: bool
    page: KeysetPage[Incident]
    rows: tuple[InboxRow, ...]
    """Resolved incidents of this page."""
    figures: IncidentFigures
    found_by: tuple[FoundByCount, ...]
    disagreements: list[dict[str, Any]]
    """Reports that said healthy while a probe said down, by tier and model."""
    address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StoryRow:
    """Entry of the timeline, with the reversal and the diff of a change."""

    entry: TimelineEntry
    change: ChangeRow | None


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentPage:
    incident: Incident
    sentence: str
    wish: str
    backing_off: str
    story: tuple[StoryRow, ...]
    is_cut: bool
    """True if only the last entries are shown."""
    not_looked_at: bool
    """True if the last healthy cycle of the watch did not mention the service."""
    cost: IncidentCost
    time_to_repair: timedelta | None
    failed_remedies: tuple[str, ...]
    together: tuple[Incident, ...]
    """Incidents that the same cycle opened: they may have the same cause."""
    similar: tuple[Incident, ...]
    """Incidents of the same cause, newest first."""
    hands: tuple[User, ...]
    """Users who can take it over."""
    snoozes: dict[str, str]
    longest_note: int
    going_on: OfferedActions | None
    """Starts of the next tier in the conversation of its last cycle."""
    postmortem: str
    """Markdown, with commands and diffs for those who may see output."""
    version: str
    """Changes with everything that the timeline shows."""


def load_incidents(parameters: QueryDict) -> IncidentList:
    """Loads unresolved incidents, worst first, and a page of resolved ones."""
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
        found_by=found_by_counts(timezone.now() - FIGURES_OVER),
        disagreements=disagreements(timezone.now() - FIGURES_OVER),
        address=address_without_page(parameters),
    )


def _not_over(found: QuerySet[Incident], form: IncidentFilter) -> QuerySet[Incident]:
    if form.chosen.get("state") == Incident.State.RESOLVED:
        return found.none()
    return found.filter(state__in=Incident.UNRESOLVED_STATES).order_by("-severity", "-pk")


def _over(found: QuerySet[Incident], form: IncidentFilter) -> QuerySet[Incident]:
    """Filters resolved incidents along the primary key, since almost all are resolved."""
    if form.chosen.get("state") not in {None, Incident.State.RESOLVED}:
        return found.none()
    return found.exclude(state__in=Incident.UNRESOLVED_STATES)


def load_incident(incident: Incident, rights: frozenset[Right]) -> IncidentPage:
    may_handle = Right.HANDLE_INCIDENTS in rights
    latest = incident.events.select_related("by").order_by("-pk")[: LONGEST_STORY + 1]
    events = list(latest)[:LONGEST_STORY][::-1]
    cost, now = cost_of(incident), timezone.now()
    changes = {row.change.pk: row for row in rows_of(changes_of(incident))}
    shown = (row.change for row in changes.values())
    entries = timeline(incident, events, approvals_of(incident), shown, cost)
    others = _others(incident, events)
    sees_output = Right.SEE_OUTPUT in rights
    return IncidentPage(
        incident=incident,
        sentence=sentence_of(incident, cost, now),
        wish=wish_of(incident),
        backing_off=backing_off(incident).strip(),
        story=tuple(
            StoryRow(entry=entry, change=changes[entry.change.pk] if entry.change else None)
            for entry in entries
        ),
        is_cut=len(latest) > LONGEST_STORY,
        not_looked_at=_is_not_looked_at(incident),
        cost=cost,
        time_to_repair=time_to_repair(incident),
        failed_remedies=failed_remedies(events),
        together=tuple(one for one in others if one.cause != incident.cause),
        similar=tuple(one for one in others if one.cause == incident.cause),
        hands=tuple(accounts_that_may(Right.HANDLE_INCIDENTS)) if may_handle else (),
        snoozes=SNOOZES,
        longest_note=LONGEST_NOTE,
        going_on=_going_on(incident, rights),
        postmortem=postmortem(incident, entries, cost, now=now, with_output=sees_output),
        version=_version(incident, entries),
    )


def _version(incident: Incident, entries: Iterable[TimelineEntry]) -> str:
    facts = (
        *(incident.state, incident.owner_id, incident.severity, incident.detail),
        *(incident.times_seen, incident.healthy_cycles, incident.snoozed_until),
        [(one.at, one.mark, one.title, one.times, one.chain) for one in entries],
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _going_on(incident: Incident, rights: frozenset[Right]) -> OfferedActions | None:
    """Loads the chain of the last cycle, if the user may start its next tier."""
    cycle = incident.last_cycle
    if cycle is None or cycle.is_active or not incident.is_unresolved:
        return None
    if not rights & {Right.ESCALATE, Right.APPROVE}:
        return None
    chain = chain_of_cycle(cycle)
    if not chain.sessions:
        return None
    offered = offered_actions(last_worker(chain), chain, rights)
    starts = tuple(action for action in offered.actions if action.name in NEXT_TIER)
    return replace(offered, actions=starts)


def _is_not_looked_at(incident: Incident) -> bool:
    if incident.watch_id is None or not incident.is_unresolved:
        return False
    unseen = ServiceState.objects.not_looked_at()
    return unseen.filter(watch=incident.watch_id, service=incident.cause).exists()


def _others(incident: Incident, events: Iterable[IncidentEvent]) -> tuple[Incident, ...]:
    """Returns incidents of the same cause, and those that the same cycle opened; one query."""
    same = Q(kind=incident.kind, cause=incident.cause, drill=incident.drill)
    opened = next((event for event in events if event.kind == Step.OPENED), None)
    if opened is not None and opened.cycle_id is not None:
        same |= Q(pk__in=linked_incidents(incident, opened.cycle_id).order_by().values("pk"))
    near = Incident.objects.filter(pk__range=(incident.pk - LOOKED_AT, incident.pk + LOOKED_AT))
    others = near.filter(same).exclude(pk=incident.pk).select_related("watch")
    return tuple(others.order_by("-pk")[: 2 * SIMILAR_SHOWN])


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def incidents(request: HtmxRequest) -> HttpResponse:
    template = "_incident_list.html" if wants_fragment(request) else "incident_list.html"
    return render(request, f"web/{template}", {"list": load_incidents(request.GET)})


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def incident(request: HtmxRequest, pk: int) -> HttpResponse:
    related = Incident.objects.select_related(
        "watch__schedule", "owner", "resolved_by", "last_cycle__watch"
    )
    found = get_object_or_404(related, pk=pk)
    page = load_incident(found, rights_of(request.user))
    if wants_fragment(request) and request.GET.get("version") == page.version:
        return HttpResponse(status=NO_CHANGE)
    return render(request, "web/incident_detail.html", {"page": page, "incident": found})


NOBODY = "nobody"


@acting(Right.HANDLE_INCIDENTS)
def acknowledge_incident(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(request, pk, recorder.acknowledge, "Acknowledged: you have it.")


@acting(Right.HANDLE_INCIDENTS)
def snooze_incident(request: HttpRequest, pk: int) -> HttpResponse:
    until = snooze_until(request.POST.get("for", ""), timezone.now())

    def snooze(incident: Incident, by: User) -> Incident:
        if until is None:
            raise OperationRefused(
                RefusalCode.INVALID_CHOICE, f"Choose for how long: {', '.join(SNOOZES.values())}."
            )
        return recorder.snooze(incident, until, by=by)

    return _act(request, pk, snooze, f"Snoozed until {moment_text(until)}.")


@acting(Right.HANDLE_INCIDENTS)
def take_incident(request: HttpRequest, pk: int) -> HttpResponse:
    def take(incident: Incident, by: User) -> Incident:
        return recorder.hand_over(incident, by, by=by)

    return _act(request, pk, take, "You have it.")


@acting(Right.HANDLE_INCIDENTS)
def hand_over_incident(request: HttpRequest, pk: int) -> HttpResponse:
    name = request.POST.get("to", "")
    to = accounts_that_may(Right.HANDLE_INCIDENTS).filter(username=name).first()

    def hand_over(incident: Incident, by: User) -> Incident:
        if to is None and name != NOBODY:
            raise OperationRefused(
                RefusalCode.ACCOUNT_MISSING,
                f"There is nobody called {name[:150]!r} who handles incidents.",
            )
        return recorder.hand_over(incident, to, by=by)

    return _act(request, pk, hand_over, f"{name} has it now.".capitalize())


@acting(Right.HANDLE_INCIDENTS)
def note_incident(request: HttpRequest, pk: int) -> HttpResponse:
    def note(incident: Incident, by: User) -> Incident:
        return recorder.add_note(incident, request.POST.get("note", ""), by=by)

    return _act(request, pk, note, "The note is kept.")


@acting(Right.HANDLE_INCIDENTS)
def resolve_incident(request: HttpRequest, pk: int) -> HttpResponse:
    def resolve(incident: Incident, by: User) -> Incident:
        return recorder.resolve(incident, request.POST.get("note", ""), by=by)

    return _act(request, pk, resolve, "Resolved. If a cycle sees it again, a new incident opens.")


@acting(Right.HANDLE_INCIDENTS)
def reopen_incident(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(request, pk, recorder.reopen, "It is open again.")


def _act(request: HttpRequest, pk: int, act: Callable[..., Incident], done: str) -> HttpResponse:
    incident = get_object_or_404(Incident, pk=pk)
    try:
        act(incident, by=cast(User, request.user))
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(request, done)
    return back_or_to(request, incident)
