"""Layers around Django under ASGI: addresses, static files, headers, body limit; input checks.

The headers and the limit are outside of Django's middleware, because static files, requests that
cannot be read and bodies that are too long never reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast
from wsgiref.headers import Headers

from csp.utils import build_policy
from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.exceptions import BadRequest
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest, QueryDict
from django.utils.deprecation import MiddlewareMixin
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from whitenoise import WhiteNoise
from whitenoise.responders import Response, StaticFile

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def with_static_files(application: Application) -> Application:
    """Serve static files from the installed packages, by WhiteNoise.

    WhiteNoise's middleware is not async: under ASGI it would cost a thread for every file.
    """
    files = known_files()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        file = _found(files, scope["path"]) if scope["type"] == "http" else None
        if file is None:
            await application(scope, receive, send)
        else:
            await _send(file.get_response(scope["method"], _asked(scope)), send)

    return answer


def known_files() -> WhiteNoise:
    """Return the static files of all applications; they are found anew at each request in debug."""
    files = WhiteNoise(
        None,
        autorefresh=settings.DEBUG,
        allow_all_origins=False,
        add_headers_function=_forbid_guessing,
    )
    storages = [storage for finder in finders.get_finders() for _, storage in finder.list(None)]
    # Django prefers the first application that has a file, WhiteNoise the last.
    for location in reversed(dict.fromkeys(storage.location for storage in storages)):
        files.add_files(location, prefix=settings.STATIC_URL)
    return files


def _found(files: WhiteNoise, path: str) -> StaticFile | None:
    return files.find_file(path) if files.autorefresh else files.files.get(path)


def _forbid_guessing(headers: Headers, path: str, url: str) -> None:
    headers["X-Content-Type-Options"] = "nosniff"


def _asked(scope: Scope) -> dict[str, str]:
    """Return the request's headers under the names of WSGI, which WhiteNoise reads."""
    return {
        "HTTP_" + name.decode("latin1").upper().replace("-", "_"): value.decode("latin1")
        for name, value in scope["headers"]
    }


async def _send(response: Response, send: Send) -> None:
    """Send a file, read at once: the largest has 0.3 MB, and a thread would cost more."""
    with contextlib.closing(response.file) if response.file else contextlib.nullcontext():
        body = response.file.read() if response.file else b""
    headers = [(name.lower().encode(), value.encode()) for name, value in response.headers]
    await send({"type": "http.response.start", "status": int(response.status), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def security_headers() -> dict[bytes, bytes]:
    """Return the headers of every response; `settings.CONTENT_SECURITY_POLICY` is among them."""
    return {
        b"content-security-policy": build_policy().encode(),
        b"x-content-type-options": b"nosniff",
        b"x-frame-options": b"DENY",
        b"referrer-policy": b"same-origin",
        b"cross-origin-opener-policy": b"same-origin",
    }


def with_answer_headers(application: Application) -> Application:
    headers = security_headers()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Mapping[str, Any]) -> None:
            await send(_completed(message, headers))

        await application(scope, receive, send_with_headers)

    return answer


def _completed(message: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> Mapping[str, Any]:
    """Add the headers that a response does not set itself."""
    if message["type"] != "http.response.start":
        return message
    given = list(message.get("headers", ()))
    names = {bytes(name).lower() for name, _value in given}
    missing = [(name, value) for name, value in headers.items() if name not in names]
    return {**message, "headers": [*given, *missing]}


PROXY_ADDRESSES = ["127.0.0.1", "::1"]


def with_client_address(application: Application) -> Application:
    """Take the client's address from X-Forwarded-For, if the settings declare a proxy.

    Without a proxy, anybody on this host could choose an address, and so avoid the limit of login
    attempts.
    """
    if not settings.CLAUDEOPS_HTTPS:
        return application
    return cast("Application", ProxyHeadersMiddleware(cast("Any", application), PROXY_ADDRESSES))


INGRESS_PATHS = ("/in/", "/v2/enqueue")
"""Beginnings of the addresses of alerts, which verify and refuse bodies themselves."""
OTHER_SYSTEMS = (*INGRESS_PATHS, "/heartbeat/")
"""Beginnings of all addresses that other systems call."""
API_PATHS = ("/api/", "/mcp")
"""Beginnings of the addresses of the API, which validates what it is sent itself."""
NOT_SERVED = b"Only alerts and heartbeats are taken here.\n"


def is_ingress(scope: Scope) -> bool:
    return bool(scope["path"].startswith(INGRESS_PATHS))


def with_ingress_alone(application: Application) -> Application:
    """Serve the addresses that other systems call, and nothing else."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(OTHER_SYSTEMS):
            await application(scope, receive, send)
        else:
            await _plain(send, 404, NOT_SERVED)

    return answer


SAID = b"The request is too long: at most 1 MB is taken.\n"
TOO_LARGE = "claudeops.too_large"
"""Key in the scope of a request to an ingress address whose body was cut off."""


def with_body_limit(application: Application) -> Application:
    """Refuse a body over 1 MB while it arrives: Django's ASGI handler would write it to disk."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
        elif _declared(scope) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE and not is_ingress(scope):
            await _refuse(send)
        else:
            counted = _Counted(receive, scope)
            await application(scope, counted.receive, send)
            if counted.is_too_long and not is_ingress(scope):
                await _refuse(send)

    return answer


def _declared(scope: Scope) -> int:
    """Return the declared length; one that is no number counts as too long."""
    text = dict(scope["headers"]).get(b"content-length", b"0")
    return (
        int(text) if text.isdigit() and len(text) < 20 else settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1
    )


class _Counted:
    """Tells Django that the browser is gone when a body is too long: it then sends no response. To
    an ingress address it gives an empty body and a mark, and that answers itself."""

    def __init__(self, receive: Receive, scope: Scope) -> None:
        self._receive, self._scope, self._seen = receive, scope, 0
        if is_ingress(scope):
            self._seen = max(0, _declared(scope) - settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
            self._seen = self._seen and settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1

    @property
    def is_too_long(self) -> bool:
        return self._seen > settings.DATA_UPLOAD_MAX_MEMORY_SIZE

    async def receive(self) -> Mapping[str, Any]:
        if not self.is_too_long or not is_ingress(self._scope):
            message = await self._receive()
            self._seen += len(message.get("body", b""))
        if not self.is_too_long:
            return message
        if not is_ingress(self._scope):
            return {"type": "http.disconnect"}
        if self._scope.get(TOO_LARGE):
            await asyncio.Event().wait()  # until Django has answered; the rest is not read
        self._scope[TOO_LARGE] = True
        return {"type": "http.request", "body": b"", "more_body": False}


async def _refuse(send: Send) -> None:
    await _plain(send, 413, SAID)


async def _plain(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


class NoFiles(FileUploadHandler):
    """Refuses every upload: no form has a file."""

    def new_file(self, *args: Any, **options: Any) -> None:
        raise BadRequest("No page takes files.")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        return None

    def file_complete(self, file_size: int) -> None:
        return None


NUL = "\x00"


class PlainInputMiddleware(MiddlewareMixin):
    """Refuses a NUL in a parameter: no form sends one, and PostgreSQL cannot store it.

    Ingress views verify the bytes of a body, which must not be parsed before."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], *_arguments: object
    ) -> None:
        if request.path.startswith((*INGRESS_PATHS, *API_PATHS)):
            return
        if NUL in request.path or _has_nul(request.GET) or _has_nul(request.POST):
            raise BadRequest("A parameter holds a NUL character.")


def _has_nul(sent: QueryDict) -> bool:
    return any(NUL in text for name, values in sent.lists() for text in (name, *values))
