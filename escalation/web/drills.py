"""Starting a drill from a page."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from escalation import queue
from escalation.rehearsal.drills.drill import start_drill as begin_drill
from escalation.rehearsal.drills.scenario import ScenarioError
from sessions_app.access.guard import acting
from sessions_app.access.roles import Right


@acting(Right.RUN)
def start_drill(request: HttpRequest) -> HttpResponse:
    try:
        cycle = begin_drill(
            request.POST.get("scenario", ""),
            enqueue=queue.enqueue,
            requested_by=cast(User, request.user),
            force_fresh=bool(request.POST.get("fresh")),
        )
    except ScenarioError as error:
        messages.error(request, str(error))
        return redirect("sessions_app:dashboard")
    messages.success(request, f"The drill {cycle.drill} is queued: it costs nothing.")
    return redirect(cycle)
