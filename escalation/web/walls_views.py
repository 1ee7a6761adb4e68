"""Accepting walls that got worse: a decision of a person, with a name and a time."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone

from escalation.queue import places
from sessions_app.access.guard import acting
from sessions_app.access.roles import Right
from sessions_app.models import WallsProof


@acting(Right.APPROVE)
def accept_walls(request: HttpRequest, pk: int) -> HttpResponse:
    proof = get_object_or_404(WallsProof, pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was accepted: tick that you have looked at it.")
        return redirect("sessions_app:walls")
    holding = WallsProof.objects.filter(pk=proof.pk, is_worse=True, accepted_at=None)
    with transaction.atomic():
        accepted = holding.update(accepted_by=cast(User, request.user), accepted_at=timezone.now())
        started = places.start_waiting() if accepted else 0
    if accepted:
        messages.success(request, f"Accepted. {started} waiting sessions were called.")
    else:
        messages.warning(request, "There was nothing to accept: it does not hold anything up.")
    return redirect("sessions_app:walls")
