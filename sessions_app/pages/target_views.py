"""Pages about who is told: targets, what they hear, and what became of the last messages."""

from __future__ import annotations

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.models import Message, Target
from sessions_app.pages.target_form import TargetForm

MESSAGES_SHOWN = 20
NOT_TAKEN = 422


@needs(Right.MANAGE_KEYS)
@require_safe
def targets(request: HttpRequest) -> HttpResponse:
    return show_targets(request, TargetForm())


@needs(Right.MANAGE_KEYS)
@require_safe
def target(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Target, pk=pk)
    return show_target(request, found, TargetForm(instance=found))


def show_targets(request: HttpRequest, form: TargetForm) -> HttpResponse:
    """With what was wrong in a form that was not taken."""
    waiting = Count("messages", filter=Q(messages__state=Message.State.WAITING))
    rows = Target.objects.annotate(waiting=waiting).order_by("name")
    context = {
        "targets": rows.prefetch_related("watches"),
        "form": form,
        "zone": timezone.get_current_timezone_name(),
    }
    return render(request, "sessions_app/targets.html", context, status=_status(form))


def show_target(request: HttpRequest, target: Target, form: TargetForm) -> HttpResponse:
    context = {
        "target": target,
        "form": form,
        "messages_sent": target.messages.all()[:MESSAGES_SHOWN],
        "zone": timezone.get_current_timezone_name(),
    }
    return render(request, "sessions_app/target.html", context, status=_status(form))


def _status(form: TargetForm) -> int:
    return NOT_TAKEN if form.is_bound and form.errors else 200
