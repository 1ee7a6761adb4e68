"""What templates ask before they offer something: `may.run`, `may.see_output`."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from sessions_app.access.roles import Right, rights_of


def rights(request: HttpRequest) -> dict[str, Any]:
    return {"may": SimpleLazyObject(lambda: _by_name(request))}


def _by_name(request: HttpRequest) -> dict[str, bool]:
    held = rights_of(request.user)
    return {right.attribute: right in held for right in Right}
