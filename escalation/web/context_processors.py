"""What every page says about this installation."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from escalation.agent import ClaudeBinary, credentials_configured, find_binary
from escalation.errors import CliMissing
from escalation.host.superuser import INSTEAD_OF_ROOT, RUNS_AS_ROOT, runs_as_root
from escalation.web.health_now import health_now
from escalation.web.walls_now import current_walls


def installation(request: HttpRequest) -> dict[str, Any]:
    return {
        "version": settings.CLAUDEOPS_VERSION,
        "cli": _binary(),
        "api_key_configured": credentials_configured(),
        "root_warning": f"{RUNS_AS_ROOT} {INSTEAD_OF_ROOT}" if runs_as_root() else "",
        "walls_now": SimpleLazyObject(current_walls),
        "health_now": SimpleLazyObject(health_now),
    }


def _binary() -> ClaudeBinary | None:
    try:
        return find_binary()
    except CliMissing:
        return None
