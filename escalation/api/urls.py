"""Addresses of the API."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, path, re_path
from django.views.decorators.csrf import csrf_exempt

from escalation.api import docs, problems
from escalation.api.app import api, finished
from escalation.errors import RefusalCode

app_name = "api"


@csrf_exempt
@login_not_required
def unknown(request: HttpRequest) -> HttpResponseBase:
    problem = problems.Problem(
        HTTPStatus.NOT_FOUND,
        RefusalCode.NOT_FOUND,
        "There is no such address: see /api/v1/openapi.json.",
    )
    return problems.answer(request, problem)


def _open(pattern: URLPattern) -> URLPattern:
    """Let a view check the token itself, in place of the login."""
    view = pattern.callback
    call: Callable[..., Any]
    if iscoroutinefunction(view):

        async def async_call(request: HttpRequest, **parts: Any) -> HttpResponseBase:
            return finished(request, await view(request, **parts))

        call = async_call
    else:

        def sync_call(request: HttpRequest, **parts: Any) -> HttpResponseBase:
            return finished(request, view(request, **parts))

        call = sync_call
    return path(
        str(pattern.pattern), csrf_exempt(login_not_required(call)), name=pattern.name or None
    )


operations = [
    _open(one) for one in api.urls[0] if isinstance(one, URLPattern) and one.name != "api-root"
]
urlpatterns = [
    path("docs", docs.reference, name="docs"),
    *operations,
    re_path(r"^.*$", unknown, name="unknown"),
]
