"""The page of health. What it says about the actor comes with the context (`health_now`)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.models import WallsProof


@needs(Right.SEE_OUTPUT)
@require_safe
def health(request: HttpRequest) -> HttpResponse:
    """It names paths and settings, so it is for those who may see output."""
    proof = WallsProof.objects.defer("rows").first()
    return render(request, "sessions_app/health.html", {"last_proof": proof})
