"""Endpoints that act on a whole chain."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from escalation.next_step.stopping import Stopped
from escalation.next_step.stopping import stop_cycle as stop_chain
from sessions_app.access.guard import acting
from sessions_app.access.roles import Right
from sessions_app.models import Cycle, Session

SAID = {
    Stopped.STOPPING: "Cycle {cycle} is being stopped: nothing follows.",
    Stopped.CANCELLED: "Cycle {cycle} was cancelled: nothing more starts.",
    Stopped.NOTHING: "Cycle {cycle} has ended already: there was nothing to stop.",
}
UNCONFIRMED = "Tick the box to confirm that what runs is cut off."


@acting(Right.STOP)
def stop_cycle(request: HttpRequest, pk: int) -> HttpResponse:
    cycle = get_object_or_404(Cycle.objects.select_related("watch"), pk=pk)
    if _is_running(cycle) and not request.POST.get("confirm"):
        messages.warning(request, UNCONFIRMED)
        return redirect(cycle)
    stopped = stop_chain(cycle, by=request.user.get_username())
    messages.warning(request, SAID[stopped].format(cycle=cycle.pk))
    return redirect(cycle)


def _is_running(cycle: Cycle) -> bool:
    """What only waits can be cancelled at once: nothing is cut off."""
    return cycle.sessions.filter(status=Session.Status.RUNNING).exists()
