"""Who may act: one rule for every endpoint that starts, stops or changes something."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User

NEEDED = ("sessions_app.change_session", "sessions_app.change_watch")
REFUSED = (
    "Your account may look, but not act. Ask an administrator for the permission to change "
    "sessions and watches."
)

View = Callable[..., HttpResponse]


def may_act(user: User | AnonymousUser) -> bool:
    return user.has_perms(NEEDED)


def acting(view: View) -> View:
    """An endpoint that acts: by POST alone, and only for those who may."""

    @require_POST
    @wraps(view)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        if not may_act(request.user):
            raise PermissionDenied(REFUSED)
        return view(request, *args, **kwargs)

    return guarded
