"""Endpoints that act: each does one thing, says so, and goes to where it can be seen."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from escalation import queue
from escalation.errors import CycleActive, OperationRefused
from escalation.host import pause
from escalation.next_step import cycles
from escalation.web.permission import acting
from escalation.web.run_form import RunForm
from sessions_app.models import Cycle, Watch


@acting
def run_watch(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    form = RunForm(request.POST)
    try:
        if not form.is_valid():
            raise OperationRefused(form.problem)
        cycle = cycles.start(
            watch,
            trigger=Cycle.Trigger.MANUAL,
            enqueue=queue.enqueue,
            requested_by=cast(User, request.user),
            prompt=form.cleaned_data["prompt"],
            force_fresh=form.cleaned_data["fresh"],
            ephemeral=form.cleaned_data["ephemeral"],
            choice=form.choice,
        )
    except (CycleActive, OperationRefused) as refused:
        messages.warning(request, str(refused))
        return redirect("sessions_app:dashboard")
    messages.success(request, f"Cycle {cycle.pk} of {watch.name} is queued.")
    return redirect(cycle)


@acting
def pause_watch(request: HttpRequest, pk: int) -> HttpResponse:
    return _set_enabled(request, pk, enabled=False)


@acting
def unpause_watch(request: HttpRequest, pk: int) -> HttpResponse:
    return _set_enabled(request, pk, enabled=True)


@acting
def pause_all(request: HttpRequest) -> HttpResponse:
    stopped = pause.pause(
        request.POST.get("reason", "").strip() or "by hand",
        by=cast(User, request.user),
        stop_running=bool(request.POST.get("stop_running")),
    )
    messages.warning(
        request, f"Paused: no new tier starts. {stopped} running tiers were asked to stop."
    )
    return redirect("sessions_app:dashboard")


@acting
def unpause_all(request: HttpRequest) -> HttpResponse:
    count = pause.unpause(enqueue=queue.enqueue, by=cast(User, request.user))
    messages.success(request, pause.RUNNING_AGAIN.format(count=count))
    return redirect("sessions_app:dashboard")


def _set_enabled(request: HttpRequest, pk: int, *, enabled: bool) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    watch.enabled = enabled
    watch.save(update_fields=["enabled"])
    how = f"runs again, {watch.rhythm}" if enabled else "is paused: it runs only when asked"
    messages.success(request, f"The watch {watch.name} {how}.")
    return redirect("sessions_app:dashboard")
