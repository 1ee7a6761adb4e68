"""Watches made, changed and removed. A new one is off, until somebody switches it on."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from escalation.errors import OperationRefused
from escalation.host import removal
from sessions_app.access.guard import acting
from sessions_app.access.operator_log import note_added, note_changed, note_removed
from sessions_app.access.roles import Right
from sessions_app.models import Watch
from sessions_app.pages.watch_form import WatchForm
from sessions_app.pages.watch_views import show_form


@acting(Right.CHANGE_WATCHES)
def add_watch(request: HttpRequest) -> HttpResponse:
    form = WatchForm(request.POST)
    if not form.is_valid():
        return show_form(request, form)
    form.instance.enabled = False
    with transaction.atomic():
        watch = form.save()
        note_added(request.user, watch)
    messages.success(
        request, f"The watch {watch.name} is made. Run it once, and switch it on when you trust it."
    )
    return redirect(watch)


@acting(Right.CHANGE_WATCHES)
def edit_watch(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    form = WatchForm(request.POST, instance=watch)
    if not form.is_valid():
        return show_form(request, form, Watch.objects.get(pk=pk))
    with transaction.atomic():
        # Only what was changed: meanwhile somebody may have paused it.
        watch.save(update_fields=form.changed_data)
        note_changed(request.user, watch, form.what_changed)
    messages.success(request, f"{watch.name}: {form.what_changed}")
    return redirect(watch)


@acting(Right.CHANGE_WATCHES)
def remove_watch(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was removed: tick that you mean it.")
        return redirect("sessions_app:watch_removal", pk)
    try:
        with transaction.atomic():
            note_removed(request.user, watch)
            removal.remove(watch)
    except OperationRefused as refused:
        messages.warning(request, str(refused))
        return redirect("sessions_app:watch_removal", pk)
    messages.success(
        request, f"The watch {watch.name} is removed. What it did stays on record, under its name."
    )
    return redirect("sessions_app:watches")
