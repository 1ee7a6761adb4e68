"""Where an action leads: back to the page that its button stands on, if that page says so."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

BACK = {"now": "sessions_app:dashboard", "start": "sessions_app:start"}
"""By what a form says in its field `back`: names alone, so that nobody is led elsewhere."""


def back_or_to(request: HttpRequest, otherwise: Any) -> HttpResponse:
    return redirect(BACK.get(request.POST.get("back", ""), otherwise))
