"""A NUL in a parameter, which no form sends and PostgreSQL cannot store, is refused here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import BadRequest
from django.http import HttpRequest, QueryDict
from django.utils.deprecation import MiddlewareMixin

NUL = "\x00"


class PlainInputMiddleware(MiddlewareMixin):
    """Once a view is found, when the form has been read for its token anyway."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], *_arguments: object
    ) -> None:
        if NUL in request.path or _has_nul(request.GET) or _has_nul(request.POST):
            raise BadRequest("A parameter holds a NUL character.")


def _has_nul(sent: QueryDict) -> bool:
    return any(NUL in text for name, values in sent.lists() for text in (name, *values))
