"""Pages of remedies: those of a watch, one of them with its script and runs, and actions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from escalation.errors import OperationRefused
from escalation.run import remedies
from escalation.run.remedies import known_services, state_of
from escalation.web.changes import diff_lines
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, note_added, note_changed, note_removed
from sessions_app.models import Incident, Remedy, RemedyRun, Watch
from sessions_app.models.remedy import Parameter

RUNS_SHOWN = 20
NOT_TAKEN = 422


class RemedyForm(forms.ModelForm):  # type: ignore[type-arg]
    words = forms.CharField(
        label="Command",
        max_length=2_000,
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocapitalize": "none"}),
        help_text="Such as docker restart {service}. The first word is a program of the system or "
        "the absolute path of a script; no shell reads it.",
    )

    class Meta:
        model = Remedy
        fields = [
            *("name", "description", "words", "parameters", "kind", "service", "tier", "grants"),
            *("seconds", "probe", "tier0_hours", "undo", "enabled"),
        ]
        labels = {"seconds": "Time limit in seconds", "tier0_hours": "Tier 0: once in hours"}
        widgets = {"parameters": forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **options})
        if self.instance.pk:
            self.fields["words"].initial = self.instance.command_text

    def clean_words(self) -> list[str]:
        try:
            return shlex.split(self.cleaned_data["words"])
        except ValueError as problem:
            raise forms.ValidationError(f"{problem}. Close every quote.") from problem

    def _post_clean(self) -> None:
        # Before the model is validated, which reads the vector.
        self.instance.command = self.cleaned_data.get("words") or self.instance.command or []
        super()._post_clean()  # type: ignore[misc]

    def add_error(self, field: str | None, error: Any) -> None:
        """Show an error of the vector beside its words."""
        found = getattr(error, "error_dict", None)
        if found and "command" in found:
            found["words"] = found.pop("command")
        super().add_error("words" if field == "command" else field, error)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedyInput:
    """One parameter in the form that runs a remedy."""

    parameter: Parameter
    values: tuple[str, ...]
    """Values to choose from; empty for a number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedRemedy:
    """A remedy that can be run from another page, with the arguments that follow from there."""

    remedy: Remedy
    arguments: tuple[str, ...]


def offered_remedies(incident: Incident, remedies: Iterable[Remedy]) -> tuple[OfferedRemedy, ...]:
    """Return the remedies whose arguments follow from the incident."""
    return tuple(
        OfferedRemedy(remedy=row, arguments=(incident.cause,) * len(row.declared_parameters))
        for row in remedies
        if row.enabled and all(each.is_service for each in row.declared_parameters)
    )


@needs(Right.SEE_OUTPUT)
@require_safe
def watch_remedies(request: HttpRequest, pk: int) -> HttpResponse:
    return show_remedies(request, get_object_or_404(Watch, pk=pk), RemedyForm())


@needs(Right.SEE_OUTPUT)
@require_safe
def remedy(request: HttpRequest, pk: int) -> HttpResponse:
    found = _found(pk)
    return show_remedy(request, found, RemedyForm(instance=found))


def show_remedies(request: HttpRequest, watch: Watch, form: RemedyForm) -> HttpResponse:
    """Render the list, with the errors of a form that was refused."""
    rows = list(Remedy.objects.filter(watch=watch).select_related("watch", "script"))
    number = request.GET.get("incident", "")
    incident = Incident.objects.filter(watch=watch, pk=number).first() if _is_id(number) else None
    context = {
        "watch": watch,
        "incident": incident,
        "offered": offered_remedies(incident, rows) if incident else (),
        "form": form,
        "remedies": [(row, state_of(row)) for row in rows],
        "runs": RemedyRun.objects.with_undo().filter(watch=watch)[:RUNS_SHOWN],
        "proposals": remedies.proposals(watch),
    }
    return render(request, "web/remedies.html", context, status=_status(form))


def show_remedy(request: HttpRequest, row: Remedy, form: RemedyForm) -> HttpResponse:
    state = state_of(row)
    services = known_services(row.watch)
    context = {
        "remedy": row,
        "watch": row.watch,
        "form": form,
        "state": state,
        "difference": diff_lines(state.difference),
        "inputs": [
            RemedyInput(
                parameter=each,
                values=() if each.is_integer else (each.choices or services),
            )
            for each in row.declared_parameters
        ],
        "runs": RemedyRun.objects.with_undo().filter(remedy=row)[:RUNS_SHOWN],
    }
    return render(request, "web/remedy.html", context, status=_status(form))


def _is_id(number: str) -> bool:
    return number.isascii() and number.isdecimal() and len(number) < 19


def _found(pk: int) -> Remedy:
    return get_object_or_404(Remedy.objects.select_related("watch", "script"), pk=pk)


def _status(form: RemedyForm) -> int:
    return NOT_TAKEN if form.is_bound and form.errors else 200


@acting(Right.CHANGE_WATCHES)
def add_remedy(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    form = RemedyForm(request.POST, instance=Remedy(watch=watch))
    if not _taken(request, form):
        return show_remedies(request, watch, form)
    note_added(request.user, form.instance)
    messages.success(request, f"The remedy {form.instance.name} was added.")
    return redirect("web:remedy", form.instance.pk)


@acting(Right.CHANGE_WATCHES)
def adopt_remedy(request: HttpRequest, pk: int) -> HttpResponse:
    """Make a remedy of a command that people approved again and again."""
    watch = get_object_or_404(Watch, pk=pk)
    command, name = request.POST.get("command", ""), request.user.get_username()
    try:
        row = remedies.adopt(watch, command, by=name)
    except OperationRefused as refused:
        messages.warning(request, str(refused))
        return redirect("web:watch_remedies", pk)
    note_added(request.user, row)
    messages.success(request, f"The remedy {row.name} was made. Agents may call it from now on.")
    return redirect("web:remedy", row.pk)


@acting(Right.CHANGE_WATCHES)
def edit_remedy(request: HttpRequest, pk: int) -> HttpResponse:
    row = _found(pk)
    form = RemedyForm(request.POST, instance=row)
    if not _taken(request, form):
        return show_remedy(request, _found(pk), form)
    note_changed(request.user, row, "Changed the remedy.")
    messages.success(request, f"The remedy {row.name} was changed.")
    return redirect("web:remedy", pk)


def _taken(request: HttpRequest, form: RemedyForm) -> bool:
    if not form.is_valid():
        return False
    try:
        remedies.save(form.instance, by=request.user.get_username())
    except ValidationError as error:
        form.add_error(None, error)
        return False
    return True


@acting(Right.CHANGE_WATCHES)
def accept_remedy(request: HttpRequest, pk: int) -> HttpResponse:
    row = _found(pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was accepted: tick that you have read the difference.")
        return redirect("web:remedy", pk)
    try:
        seen, name = request.POST.get("seen", ""), request.user.get_username()
        remedies.accept(row, by=name, token=seen)
        note_changed(request.user, row, "Accepted the script.")
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(request, f"The script of {row.name} is accepted as it is now.")
    return redirect("web:remedy", pk)


@acting(Right.CHANGE_WATCHES)
def remove_remedy(request: HttpRequest, pk: int) -> HttpResponse:
    row = _found(pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was removed: tick the box to confirm.")
        return redirect("web:remedy", pk)
    note_removed(request.user, row)
    remedies.remove(row)
    messages.success(request, f"The remedy {row.name} was removed. Its runs stay in the record.")
    return redirect("web:watch_remedies", row.watch_id)


@acting(Right.APPROVE)
def run_remedy(request: HttpRequest, pk: int) -> HttpResponse:
    """Let a worker run a remedy. `incident` is the incident from whose page it was asked for."""
    row = _found(pk)
    number = request.POST.get("incident", "")
    of_watch = Incident.objects.filter(watch=row.watch_id)
    incident = of_watch.filter(pk=number).first() if _is_id(number) else None
    back = redirect(incident) if incident else redirect("web:remedy", pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was run: tick the box to confirm.")
        return back
    try:
        run = remedies.ask_to_run(
            row,
            request.POST.getlist("argument"),
            by=request.user,  # type: ignore[arg-type]
            by_name=request.user.get_username(),
            incident=incident,
        )
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(request, f"{run.call} was handed to a worker. Its result is shown here.")
    return back


@acting(Right.APPROVE)
def undo_remedy(request: HttpRequest, pk: int) -> HttpResponse:
    """Let a worker run what undoes a run of this remedy."""
    row, number = _found(pk), request.POST.get("run", "")
    runs = RemedyRun.objects.select_related("remedy", "incident").filter(remedy=row)
    run = runs.filter(pk=number).first() if _is_id(number) else None
    back = redirect(run.incident) if run and run.incident else redirect("web:remedy", pk)
    if run is None:
        messages.warning(request, f"{row.name} has no such run. Nothing was undone.")
    elif request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was undone: tick the box to confirm.")
    else:
        try:
            undo = remedies.ask_to_undo(
                run,
                by=request.user,  # type: ignore[arg-type]
                by_name=request.user.get_username(),
            )
        except OperationRefused as refused:
            messages.warning(request, str(refused))
        else:
            messages.success(
                request, f"{undo.call} was handed to a worker. Its result is shown here."
            )
    return back
