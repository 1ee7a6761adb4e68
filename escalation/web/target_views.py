"""Targets made, changed, tried, switched and removed: for those who manage keys."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from escalation.word import targets
from sessions_app.access.guard import acting
from sessions_app.access.roles import Right
from sessions_app.models import Target
from sessions_app.pages.target_form import TargetForm
from sessions_app.pages.target_views import show_target, show_targets


@acting(Right.MANAGE_KEYS)
def add_target(request: HttpRequest) -> HttpResponse:
    form = TargetForm(request.POST)
    if not _taken(form):
        return show_targets(request, form)
    messages.success(request, f"{form.instance.name} is made. Send a test to see it arrive.")
    return redirect("sessions_app:target", form.instance.pk)


@acting(Right.MANAGE_KEYS)
def edit_target(request: HttpRequest, pk: int) -> HttpResponse:
    target = get_object_or_404(Target, pk=pk)
    form = TargetForm(request.POST, instance=target)
    if not _taken(form):
        return show_target(request, Target.objects.get(pk=pk), form)
    messages.success(request, f"{target.name} is changed.")
    return redirect("sessions_app:target", pk)


@acting(Right.MANAGE_KEYS)
def test_target(request: HttpRequest, pk: int) -> HttpResponse:
    target = get_object_or_404(Target, pk=pk)
    answer = targets.send_test(target)
    if answer.ok:
        messages.success(request, f"The test was sent to {target.name}. Look whether it is there.")
    else:
        messages.error(request, f"The test did not reach {target.name}. {answer.said}")
    return redirect("sessions_app:target", pk)


@acting(Right.MANAGE_KEYS)
def enable_target(request: HttpRequest, pk: int) -> HttpResponse:
    target = get_object_or_404(Target, pk=pk)
    targets.set_enabled(target, enabled=True)
    messages.success(request, f"{target.name} is on: it hears what happens from now on.")
    return redirect("sessions_app:target", pk)


@acting(Right.MANAGE_KEYS)
def disable_target(request: HttpRequest, pk: int) -> HttpResponse:
    target = get_object_or_404(Target, pk=pk)
    left = targets.set_enabled(target, enabled=False)
    messages.warning(request, f"{target.name} is off. {left} waiting messages are not sent.")
    return redirect("sessions_app:target", pk)


@acting(Right.MANAGE_KEYS)
def remove_target(request: HttpRequest, pk: int) -> HttpResponse:
    target = get_object_or_404(Target, pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was removed: tick that you mean it.")
        return redirect("sessions_app:target", pk)
    target.delete()
    messages.success(request, f"{target.name} is removed, with its address and its messages.")
    return redirect("sessions_app:targets")


def _taken(form: TargetForm) -> bool:
    """Saved, unless something is wrong; the address is looked at last, because that takes long."""
    if not form.is_valid():
        return False
    address = form.cleaned_data["address"]
    if address and (objection := targets.set_address(form.instance, address)):
        form.add_error("address", objection)
        return False
    form.save()
    return True
