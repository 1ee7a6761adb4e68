"""The page of how far a watch is trusted."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.models import Watch
from sessions_app.pages.trust_page import load_trust


@needs(Right.SEE)
@require_safe
def trust(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch.objects.select_related("schedule"), pk=pk)
    return render(request, "sessions_app/trust.html", {"trust": load_trust(watch)})
