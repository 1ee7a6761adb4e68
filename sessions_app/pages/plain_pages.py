"""No page carries a character that acts on its reader, whatever template let it through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from sessions_app.reading.plain_text import UNSEEN, clean

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
    """A stream is not held up here: its messages are cleaned one by one (`live`)."""
    kind = response.headers.get("Content-Type", "")
    if isinstance(response, HttpResponse) and kind.startswith("text/html"):
        text = response.content.decode(response.charset, "replace")
        if UNSEEN.search(text):
            response.content = clean(text).encode(response.charset)
            if "Content-Length" in response.headers:  # as it was before
                response.headers["Content-Length"] = str(len(response.content))
    return response
