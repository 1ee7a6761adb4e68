"""Scenarios that pages offer, and the start of a drill."""

from __future__ import annotations

import contextlib
from typing import cast

from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from escalation.drills.drill import start_drill as begin_drill
from escalation.drills.scenario import Scenario, ScenarioError, load_scenario, scenario_names
from sessions_app.access.permissions import acting
from sessions_app.access.roles import Right, may


def scenarios_for(user: User | AnonymousUser) -> list[Scenario]:
    """Returns the scenarios that a user may start, without files that cannot be read."""
    readable = []
    for name in scenario_names() if may(user, Right.RUN) else ():
        with contextlib.suppress(ScenarioError):
            readable.append(load_scenario(name))
    return readable


@acting(Right.RUN)
def start_drill(request: HttpRequest) -> HttpResponse:
    try:
        cycle = begin_drill(
            request.POST.get("scenario", ""),
            requested_by=cast(User, request.user),
            force_fresh=bool(request.POST.get("fresh")),
        )
    except ScenarioError as error:
        messages.error(request, str(error))
        return redirect("web:overview")
    messages.success(request, f"The drill {cycle.drill} is queued: it costs nothing.")
    return redirect(cycle)
