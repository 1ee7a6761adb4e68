"""Endpoints that act on an incident."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone

from escalation.errors import OperationRefused
from escalation.incidents import by_person
from escalation.web.way_back import back_or_to
from sessions_app.access.guard import acting
from sessions_app.access.roles import Right, accounts_that_may
from sessions_app.models import Incident
from sessions_app.models.account_clock import moment_text
from sessions_app.reading.incident_text import SNOOZES, snooze_until

NOBODY = "nobody"


@acting(Right.HANDLE_INCIDENTS)
def acknowledge_incident(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(request, pk, by_person.acknowledge, "Acknowledged: you have it.")


@acting(Right.HANDLE_INCIDENTS)
def snooze_incident(request: HttpRequest, pk: int) -> HttpResponse:
    until = snooze_until(request.POST.get("for", ""), timezone.now())

    def snooze(incident: Incident, by: User) -> Incident:
        if until is None:
            raise OperationRefused(f"Choose for how long: {', '.join(SNOOZES.values())}.")
        return by_person.snooze(incident, until, by=by)

    return _act(request, pk, snooze, f"Snoozed until {moment_text(until)}.")


@acting(Right.HANDLE_INCIDENTS)
def take_incident(request: HttpRequest, pk: int) -> HttpResponse:
    def take(incident: Incident, by: User) -> Incident:
        return by_person.hand_over(incident, by, by=by)

    return _act(request, pk, take, "You have it.")


@acting(Right.HANDLE_INCIDENTS)
def hand_over_incident(request: HttpRequest, pk: int) -> HttpResponse:
    name = request.POST.get("to", "")
    to = accounts_that_may(Right.HANDLE_INCIDENTS).filter(username=name).first()

    def hand_over(incident: Incident, by: User) -> Incident:
        if to is None and name != NOBODY:
            raise OperationRefused(f"There is nobody called {name[:150]!r} who handles incidents.")
        return by_person.hand_over(incident, to, by=by)

    return _act(request, pk, hand_over, f"{name} has it now.".capitalize())


@acting(Right.HANDLE_INCIDENTS)
def note_incident(request: HttpRequest, pk: int) -> HttpResponse:
    def note(incident: Incident, by: User) -> Incident:
        return by_person.note(incident, request.POST.get("note", ""), by=by)

    return _act(request, pk, note, "The note is kept.")


@acting(Right.HANDLE_INCIDENTS)
def resolve_incident(request: HttpRequest, pk: int) -> HttpResponse:
    def resolve(incident: Incident, by: User) -> Incident:
        return by_person.resolve(incident, request.POST.get("note", ""), by=by)

    return _act(request, pk, resolve, "Resolved. If a round sees it again, a new incident opens.")


@acting(Right.HANDLE_INCIDENTS)
def reopen_incident(request: HttpRequest, pk: int) -> HttpResponse:
    return _act(request, pk, by_person.reopen, "It is open again.")


def _act(request: HttpRequest, pk: int, act: Callable[..., Incident], done: str) -> HttpResponse:
    incident = get_object_or_404(Incident, pk=pk)
    try:
        act(incident, by=cast(User, request.user))
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(request, done)
    return back_or_to(request, incident)
