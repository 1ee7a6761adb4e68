"""Page of a watch's autonomy: the levels, and what each would have allowed lately."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from escalation.queue import installation_lock
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, note_changed
from sessions_app.history.autonomy import WhatIf, recorded_wishes, what_if
from sessions_app.models import Watch
from sessions_app.models.autonomy import AutonomyLevel


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRow:
    step: AutonomyLevel
    is_in_force: bool
    is_more: bool
    """True if it allows more than the level in force, or if no level is in force."""
    would: WhatIf


@dataclass(frozen=True, kw_only=True, slots=True)
class AutonomyPage:
    watch: Watch
    steps: tuple[StepRow, ...]

    @property
    def by_hand(self) -> bool:
        return self.watch.autonomy_level is None


def load_autonomy(watch: Watch) -> AutonomyPage:
    """Makes three queries."""
    record, now = recorded_wishes(watch), watch.autonomy_level
    rows = (
        StepRow(
            step=step,
            is_in_force=step == now,
            is_more=now is None or step.rank > now.rank,
            would=what_if(record, step),
        )
        for step in AutonomyLevel
    )
    return AutonomyPage(watch=watch, steps=tuple(rows))


@needs(Right.SEE)
@require_safe
def autonomy(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch.objects.select_related("schedule"), pk=pk)
    return render(request, "web/autonomy.html", {"autonomy": load_autonomy(watch)})


@acting(Right.CHANGE_WATCHES)
def set_autonomy(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    wanted = request.POST.get("step", "")
    if wanted not in list(AutonomyLevel):
        messages.warning(request, "Nothing was changed: choose one of the steps below.")
    elif request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was changed: tick that you have read what it would do.")
    else:
        with installation_lock():
            watch = get_object_or_404(Watch, pk=pk)
            watch.set_autonomy_level(AutonomyLevel(wanted))
            watch.save(update_fields=list(Watch.AUTONOMY_FIELDS))
            note_changed(request.user, watch, f"Autonomy: {watch.autonomy_title}.")
        messages.success(
            request,
            f"{watch.name} now has autonomy {watch.autonomy_title}. It holds for every tier that "
            "starts from now on.",
        )
    return redirect("web:autonomy", pk=watch.pk)
