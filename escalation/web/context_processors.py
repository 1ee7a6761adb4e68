"""Context processors: the values that the base template of every page needs."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from escalation.agent.binary import credentials_configured
from escalation.web.health import installed_binary
from sessions_app.access.roles import Right, rights_of
from sessions_app.history.header_status import load_header_status


def installation(request: HttpRequest) -> dict[str, Any]:
    """Adds the version, the CLI, the file of settings and whether credentials are configured."""
    return {
        "version": settings.CLAUDEOPS_VERSION,
        "cli": installed_binary(),
        "env_file": settings.CLAUDEOPS_ENV_FILE,
        "api_key_configured": credentials_configured(),
    }


def header_status(request: HttpRequest) -> dict[str, Any]:
    """Adds the header status; a view that has loaded it already passes it itself."""
    return {"header_status": SimpleLazyObject(load_header_status)}


def rights(request: HttpRequest) -> dict[str, Any]:
    """Adds the rights of the user by name: `may.run`, `may.see_output`."""
    return {"may": SimpleLazyObject(lambda: _rights_by_name(request))}


def _rights_by_name(request: HttpRequest) -> dict[str, bool]:
    held = rights_of(request.user)
    return {right.attribute: right in held for right in Right}
