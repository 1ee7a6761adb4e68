"""Shared responses: fragments for htmx, redirects, and removal of control characters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from asgiref.sync import iscoroutinefunction
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponsePermanentRedirect,
)
from django.shortcuts import redirect
from django.utils.decorators import sync_and_async_middleware

from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right
from sessions_app.text import UNSEEN, clean

if TYPE_CHECKING:
    from django_htmx.middleware import HtmxDetails


class HtmxRequest(HttpRequest):
    htmx: HtmxDetails


def wants_fragment(request: HtmxRequest) -> bool:
    """Returns whether htmx replaces a part; a boosted link and a restored history entry get the
    page.
    """
    htmx = request.htmx
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


BACK = {"overview": "web:overview", "start": "web:start"}
"""Maps the form field `back` to a URL name; other values are ignored, so it cannot lead elsewhere.
"""


def back_or_to(request: HttpRequest, otherwise: Any) -> HttpResponse:
    return redirect(BACK.get(request.POST.get("back", ""), otherwise))


@needs(Right.SEE)
def moved(request: HttpRequest, to: str, **parts: str) -> HttpResponse:
    """Redirects an address of an earlier version, and keeps the method and the query.

    The expressions in `urls.moved` match paths, so the target is always local.
    """
    query = request.META.get("QUERY_STRING", "")
    address = quote(to.format(**parts)) + (f"?{query}" if query else "")
    reads = request.method in ("GET", "HEAD")
    return HttpResponsePermanentRedirect(address, preserve_request=not reads)


# Middleware that removes invisible and control characters from every HTML page.

View = Callable[[HttpRequest], HttpResponseBase]
AsyncView = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


@sync_and_async_middleware
def plain_pages(get_response: View | AsyncView) -> View | AsyncView:
    if iscoroutinefunction(get_response):

        async def async_middleware(request: HttpRequest) -> HttpResponseBase:
            return _plain(await get_response(request))

        return async_middleware

    def middleware(request: HttpRequest) -> HttpResponseBase:
        return _plain(get_response(request))  # type: ignore[arg-type]

    return middleware


def _plain(response: HttpResponseBase) -> HttpResponseBase:
    """Cleans a complete HTML response; streamed messages are cleaned one by one in `live`."""
    kind = response.headers.get("Content-Type", "")
    if isinstance(response, HttpResponse) and kind.startswith("text/html"):
        text = response.content.decode(response.charset, "replace")
        if UNSEEN.search(text):
            response.content = clean(text).encode(response.charset)
            if "Content-Length" in response.headers:
                response.headers["Content-Length"] = str(len(response.content))
    return response
