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
from escalation.web.lists import shows_drills
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


MAIN = (
    ("Overview", "web:overview"),
    ("Incidents", "web:incidents"),
    ("Watches", "web:watches"),
    ("Costs", "web:costs"),
)
HISTORY = (
    ("Cycles", "web:cycles"),
    ("Sessions", "web:sessions"),
    ("Changes", "web:changes"),
    ("Events", "web:events"),
)
"""Tabs of the place History."""
COG = (
    CogEntry("Approvals", "web:approvals", "hand-raised", Right.SEE_OUTPUT),
    CogEntry("Services", "web:services", "server-stack"),
    CogEntry("Notifications", "web:channels", "megaphone", Right.MANAGE_KEYS),
    CogEntry("Sources of alerts", "web:sources", "inbox-arrow-down", Right.MANAGE_KEYS),
    CogEntry("Board", "web:board", "tv"),
    CogEntry("Accounts", "web:accounts", "users", Right.MANAGE_KEYS),
    CogEntry("API tokens", "web:tokens", "key"),
    CogEntry("Sandbox", "web:sandbox", "shield-check"),
    CogEntry("Health", "web:health", "heart", Right.SEE_OUTPUT),
    CogEntry("Admin", "admin:index", "wrench-screwdriver", Right.SEE_OUTPUT),
)


def place_of(path: str) -> str:
    """Returns the place in the navigation that an address belongs to."""
    first = path.strip("/").partition("/")[0]
    return next((place for place, parts in PLACES.items() if first in parts), "")


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Adds the current place, and the entries of the cog that the user may open."""
    place = place_of(request.path)
    return {
        "place": place,
        "tabs": _tabs(request) if place == "history" else (),
        "cog_entries": SimpleLazyObject(lambda: _entries_for(request)),
    }


@dataclass(frozen=True, slots=True)
class Tab:
    title: str
    url: str
    is_current: bool


def _tabs(request: HttpRequest) -> list[Tab]:
    """Returns the tabs of History; a choice of drills goes along."""
    rest = "?drill=yes" if shows_drills(request.GET) else ""
    return [
        Tab(title, reverse(page) + rest, request.path == reverse(page)) for title, page in HISTORY
    ]


def pages_for(rights: frozenset[Right]) -> list[tuple[str, str]]:
    """Returns title and address of every page of the navigation that these rights open."""
    cog = [(entry.title, entry.url) for entry in COG if entry.right in rights]
    return [*((title, reverse(page)) for title, page in MAIN + HISTORY), *cog]


def _entries_for(request: HttpRequest) -> list[CogEntry]:
    held = rights_of(request.user)
    return [entry for entry in COG if entry.right in held]
