"""What every page says before its own: how much wants a person, and what keeps it from working."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from sessions_app.reading.glance import load_glance


def glance(request: HttpRequest) -> dict[str, Any]:
    """A page that has looked already says so itself."""
    return {"glance": SimpleLazyObject(load_glance)}
