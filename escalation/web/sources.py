"""Pages of the sources of alerts: list, form, last deliveries, and actions on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Count, Q, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from escalation.alerts import deliveries
from escalation.alerts import sources as engine
from escalation.alerts.deliveries import refusals
from escalation.alerts.parsers import GENERIC_PATHS
from escalation.alerts.samples import Preview
from escalation.alerts.sources import NewSource
from escalation.errors import OperationRefused
from escalation.queue import installation_lock
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right
from sessions_app.models import Alert, RefusedDeliveries, Source
from sessions_app.models.alert import SourceKind
from sessions_app.text import json_text

DELIVERIES_SHOWN = 20
REFUSED_FOR = timedelta(days=1)
NOT_TAKEN = 422
PATH = "path_"
"""Prefix of the inputs that hold the path of a field."""
NO_WATCH = "Choose a watch, or write a route: otherwise the alerts belong to nothing."


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A delivery of a generic source from which its paths are chosen."""

    text: str = ""
    preview: Preview | None = None
    problem: str = ""


def stored_sample(source: Source) -> Sample:
    if source.sample is None:
        return Sample()
    text = json_text(source.sample, indent=2)
    return Sample(text=text, preview=engine.preview_of(source, source.sample))


class SourceForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Source
        fields = ["name", "kind", "watch", "routes", "service_label", "paths", "runs_again"]
        labels = {
            "routes": "Routes by label",
            "service_label": "Label of the service",
            "paths": "Paths of any JSON",
            "runs_again": "Run again for worse and further problems of an open incident",
        }
        help_texts = {
            "watch": "For the alerts that no route matches.",
            "routes": "One in each line, like `team=web shop`: a label, its value, a watch.",
            "paths": 'Like {"service": "host.name", "summary": "text"}.',
            "runs_again": "",
        }
        widgets = {
            "routes": forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
            "paths": forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **options})
        watch = self.fields["watch"]
        assert isinstance(watch, forms.ModelChoiceField)
        watch.empty_label = "by routes alone"
        if self.instance.pk:
            self.fields["kind"].disabled = True
            self.fields["kind"].help_text = "A source keeps its kind: its sender has one."

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        routes, paths = cleaned.get("routes") or "", cleaned.get("paths") or {}
        cleaned["paths"] = paths
        if objection := engine.objection_to(routes, paths):
            self.add_error("routes", objection)
        elif not routes.strip() and cleaned.get("watch") is None:
            self.add_error("watch", NO_WATCH)
        return cleaned


@needs(Right.MANAGE_KEYS)
@require_safe
def sources(request: HttpRequest) -> HttpResponse:
    return show_sources(request, SourceForm())


@needs(Right.MANAGE_KEYS)
@require_safe
def source(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Source, pk=pk)
    return show_source(request, found, SourceForm(instance=found))


def show_sources(request: HttpRequest, form: SourceForm) -> HttpResponse:
    """Render the list, with the errors of a form that was refused."""
    refusals.flush()
    firing = Count("problems", filter=Q(problems__state=Alert.State.FIRING))
    context = {
        "sources": Source.objects.select_related("watch").annotate(firing=firing).order_by("name"),
        "refused": refused_lately(),
        "form": form,
    }
    return render(request, "web/sources.html", context, status=_status(form))


def refused_lately() -> list[tuple[str, int]]:
    """Return the reasons for which requests were refused in the last day, with their number."""
    lately = RefusedDeliveries.objects.filter(minute__gte=timezone.now() - REFUSED_FOR)
    sums = lately.order_by().values_list("reason").annotate(number=Sum("count"))
    return [(str(RefusedDeliveries.Reason(reason).label), number) for reason, number in sums]


def show_source(
    request: HttpRequest,
    source: Source,
    form: SourceForm,
    made: NewSource | None = None,
    sample: Sample | None = None,
) -> HttpResponse:
    """Render the page of a source. `made`: its new address and secret, displayed once."""
    if source.kind == SourceKind.GENERIC and sample is None:
        sample = stored_sample(source)
    context = {
        "sample": sample,
        "source": source,
        "form": form,
        "made": made,
        "deliveries": source.deliveries.defer("encrypted_body")[:DELIVERIES_SHOWN],
        "firing": source.problems.filter(state=Alert.State.FIRING)[:DELIVERIES_SHOWN],
    }
    status = NOT_TAKEN if sample and sample.problem else _status(form)
    answer = render(request, "web/source.html", context, status=status)
    if made is not None:
        answer["Cache-Control"] = "no-store"
    return answer


def _status(form: SourceForm) -> int:
    return NOT_TAKEN if form.is_bound and form.errors else 200


@acting(Right.MANAGE_KEYS)
def add_source(request: HttpRequest) -> HttpResponse:
    form = SourceForm(request.POST)
    if not form.is_valid():
        return show_sources(request, form)
    try:
        made = engine.add(form.save(commit=False))
    except OperationRefused as refused:
        form.add_error(None, str(refused))
        return show_sources(request, form)
    return show_source(request, made.source, SourceForm(instance=made.source), made)


@acting(Right.MANAGE_KEYS)
def edit_source(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Source, pk=pk)
    form = SourceForm(request.POST, instance=found)
    if not form.is_valid() or not _saved(form):
        return show_source(request, get_object_or_404(Source, pk=pk), form)
    messages.success(request, f"{found.name} was changed.")
    return redirect("web:source", pk)


def _saved(form: SourceForm) -> bool:
    """Save the fields of the form, after looking again at what may have changed meanwhile."""
    with installation_lock():
        changed: Source = form.save(commit=False)
        get_object_or_404(Source, pk=changed.pk)
        try:
            changed.validate_unique()
        except ValidationError as error:
            form.add_error(None, error)
            return False
        changed.save(update_fields=[name for name in form.fields if name != "kind"])
    return True


@acting(Right.MANAGE_KEYS)
def paths_of_source(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what would be understood of a sample, or store the paths that were chosen from it."""
    found, text = get_object_or_404(Source, pk=pk), request.POST.get("sample", "")
    given = {
        name: request.POST[PATH + name].strip()
        for name in GENERIC_PATHS
        if PATH + name in request.POST
    }
    try:
        body = engine.read_sample(text)
        seen = engine.preview_of(found, body, given or None)
        if request.POST.get("save") == "on":
            engine.set_paths(found, given)
            messages.success(request, f"{found.name} is read by these paths from now on.")
            return redirect("web:source", pk)
        sample = Sample(text=text, preview=seen)
    except OperationRefused as refused:
        sample = Sample(text=text, problem=str(refused))
    return show_source(request, found, SourceForm(instance=found), sample=sample)


@acting(Right.MANAGE_KEYS)
def renew_source(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Source, pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was changed: tick the box to confirm.")
        return redirect("web:source", pk)
    made = engine.renew(found)
    return show_source(request, found, SourceForm(instance=found), made)


@acting(Right.MANAGE_KEYS)
def test_source(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Source, pk=pk)
    delivery = deliveries.send_test(found)
    messages.success(
        request, f"Test {delivery.pk} was stored. The worker judges it within seconds."
    )
    return redirect("web:source", pk)


@acting(Right.MANAGE_KEYS)
def enable_source(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Source, pk=pk)
    engine.set_enabled(found, enabled=True)
    messages.success(request, f"{found.name} is on.")
    return redirect("web:source", pk)


@acting(Right.MANAGE_KEYS)
def disable_source(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Source, pk=pk)
    engine.set_enabled(found, enabled=False)
    messages.warning(request, f"{found.name} is off. What it sends is refused.")
    return redirect("web:source", pk)


@acting(Right.MANAGE_KEYS)
def remove_source(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Source, pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was removed: tick the box to confirm.")
        return redirect("web:source", pk)
    engine.remove(found)
    messages.success(request, f"{found.name} was removed, with its deliveries.")
    return redirect("web:sources")
