"""Endpoints that act: each does one thing, says so, and goes to where it can be seen."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from escalation import queue
from escalation.errors import CycleActive, OperationRefused
from escalation.host import pause
from escalation.next_step import account_clock, cycles
from escalation.web.run_form import RunForm
from escalation.web.way_back import back_or_to
from sessions_app.access.guard import acting
from sessions_app.access.operator_log import note_changed
from sessions_app.access.roles import Right
from sessions_app.models import Cycle, Watch


@acting(Right.RUN)
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
        return _back(request, watch)
    messages.success(request, f"Cycle {cycle.pk} of {watch.name} is queued.")
    return back_or_to(request, cycle)


@acting(Right.STOP)
def pause_watch(request: HttpRequest, pk: int) -> HttpResponse:
    return _set_enabled(request, pk, enabled=False)


@acting(Right.CHANGE_WATCHES)
def unpause_watch(request: HttpRequest, pk: int) -> HttpResponse:
    return _set_enabled(request, pk, enabled=True)


@acting(Right.PAUSE_ALL)
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


@acting(Right.PAUSE_ALL)
def unpause_all(request: HttpRequest) -> HttpResponse:
    count = pause.unpause(enqueue=queue.enqueue, by=cast(User, request.user))
    messages.success(request, pause.RUNNING_AGAIN.format(count=count))
    return redirect("sessions_app:dashboard")


@acting(Right.PAUSE_ALL)
def lift_limit(request: HttpRequest) -> HttpResponse:
    count = account_clock.lift(by=cast(User, request.user))
    messages.success(request, account_clock.LIFTED.format(count=count))
    return redirect("sessions_app:dashboard")


def _set_enabled(request: HttpRequest, pk: int, *, enabled: bool) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    watch.enabled = enabled
    with transaction.atomic():
        watch.save(update_fields=["enabled"])
        note_changed(request.user, watch, "Switched on." if enabled else "Paused.")
    how = f"runs again, {watch.rhythm}" if enabled else "is paused: it runs only when asked"
    messages.success(request, f"The watch {watch.name} {how}.")
    return _back(request, watch)


def _back(request: HttpRequest, watch: Watch) -> HttpResponse:
    """To where it was asked for."""
    if request.POST.get("from") == "watch":
        return redirect(watch)
    return back_or_to(request, "sessions_app:dashboard")
