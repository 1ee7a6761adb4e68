"""Raising or lowering the trust in a watch: a decision of a person, confirmed."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from sessions_app.access.guard import acting
from sessions_app.access.operator_log import note_changed
from sessions_app.access.roles import Right
from sessions_app.models import Watch
from sessions_app.models.trust import Step


@acting(Right.CHANGE_WATCHES)
def set_trust(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    wanted = request.POST.get("step", "")
    if wanted not in list(Step):
        messages.warning(request, "Nothing was changed: choose one of the steps below.")
    elif request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was changed: tick that you have read what it would do.")
    else:
        watch.trust(Step(wanted))
        with transaction.atomic():
            watch.save(update_fields=list(Watch.TRUST_FIELDS))
            note_changed(request.user, watch, f"Trusted with: {watch.trust_title}.")
        messages.success(
            request,
            f"{watch.name} is now trusted with: {watch.trust_title}. It holds for every tier that "
            "starts from now on.",
        )
    return redirect("sessions_app:trust", pk=watch.pk)
