"""Context processors: the values that the base template of every page needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
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


# The navigation. An address belongs to the place that its first part names.
PLACES = {
    "incidents": ("incidents",),
    "watches": ("watches", "services", "remedies", "start"),
    "history": ("cycles", "sessions", "changes", "events"),
    "costs": ("costs",),
}


@dataclass(frozen=True, slots=True)
class CogEntry:
    title: str
    page: str
    icon: str
    right: Right = Right.SEE

    @property
    def url(self) -> str:
        return reverse(self.page)


COG = (
    CogEntry("Approvals", "web:approvals", "hand-raised", Right.SEE_OUTPUT),
    CogEntry("Services", "web:services", "server-stack"),
    CogEntry("Notifications", "web:channels", "megaphone", Right.MANAGE_KEYS),
    CogEntry("Sources of alerts", "web:sources", "inbox-arrow-down", Right.MANAGE_KEYS),
    CogEntry("API tokens", "web:tokens", "key"),
    CogEntry("Sandbox", "web:sandbox", "shield-check"),
    CogEntry("Health", "web:health", "heart"),
    CogEntry("Admin", "admin:index", "wrench-screwdriver", Right.SEE_OUTPUT),
)


def place_of(path: str) -> str:
    """Returns the place in the navigation that an address belongs to."""
    first = path.strip("/").partition("/")[0]
    return next((place for place, parts in PLACES.items() if first in parts), "")


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Adds the current place, and the entries of the cog that the user may open."""
    return {
        "place": place_of(request.path),
        "cog_entries": SimpleLazyObject(lambda: _entries_for(request)),
    }


def _entries_for(request: HttpRequest) -> list[CogEntry]:
    held = rights_of(request.user)
    return [entry for entry in COG if entry.right in held]
