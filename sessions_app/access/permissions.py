"""Decorators that state the right a view needs, and the middleware that checks it.

A view without a decorator is served to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.urls import ResolverMatch
from django.utils.deprecation import MiddlewareMixin
from django.views.decorators.http import require_POST

from sessions_app.access.accounts import note_seen
from sessions_app.access.roles import Right, may, refusal

View = TypeVar("View", bound=Callable[..., Any])
NEEDED = "needed_right"
ANY_ACCOUNT = "any account"


def needs(right: Right) -> Callable[[View], View]:
    """Require a right. Must be the outermost decorator, which the middleware reads."""

    def mark(view: View) -> View:
        setattr(view, NEEDED, right)
        return view

    return mark


def acting(right: Right) -> Callable[[View], Callable[..., Any]]:
    """Require a right and the method POST."""

    def mark(view: View) -> Callable[..., Any]:
        return needs(right)(require_POST(view))

    return mark


def for_any_account(view: View) -> View:
    """Allow accounts without a role too, as for logout and the own password."""
    setattr(view, NEEDED, ANY_ACCOUNT)
    return view


class AccessMiddleware(MiddlewareMixin):
    """Checks the right of a view. Runs after Django's `LoginRequiredMiddleware`."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], *_arguments: object
    ) -> None:
        found = request.resolver_match
        if isinstance(request.user, User):
            note_seen(request, request.user)
        if found is not None and "admin" in found.app_names:
            needed: str | None = _needed_in_admin(request, found)
        elif not getattr(view, "login_required", True):
            return
        else:
            needed = getattr(view, NEEDED, None)
        if needed == ANY_ACCOUNT:
            return
        right = Right(needed) if needed else Right.MANAGE_KEYS
        if needed is None or not may(request.user, right):
            raise PermissionDenied(refusal(request.user, right))


def _needed_in_admin(request: HttpRequest, found: ResolverMatch) -> str:
    """Return the right to enter the admin. Its pages check further rights themselves."""
    is_way_in = found.url_name == "login" or not request.user.is_authenticated
    return ANY_ACCOUNT if is_way_in else Right.SEE_OUTPUT
