"""What the navigation of every page says: how much wants a person."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from sessions_app.reading.attention import load_attention


def navigation(request: HttpRequest) -> dict[str, Any]:
    """A page that has counted already says so itself."""
    return {"attention": SimpleLazyObject(load_attention)}
