"""Static files for the web server, by WhiteNoise, straight from the installed packages.

WhiteNoise's own middleware knows no async: under ASGI every file costs a thread and a warning in
the log. So WhiteNoise keeps the files with their headers and decides on the
answer (whole, part, or not modified), and this module asks it before Django is asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from wsgiref.headers import Headers

from django.conf import settings
from django.contrib.staticfiles import finders
from whitenoise import WhiteNoise
from whitenoise.responders import Response, StaticFile

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def with_static_files(application: Application) -> Application:
    files = known_files()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        file = _found(files, scope["path"]) if scope["type"] == "http" else None
        if file is None:
            await application(scope, receive, send)
        else:
            await _send(file.get_response(scope["method"], _asked(scope)), send)

    return answer


def known_files() -> WhiteNoise:
    """All files of all applications: looked for once, or at every request in debugging."""
    files = WhiteNoise(
        None,
        autorefresh=settings.DEBUG,
        allow_all_origins=False,
        add_headers_function=_forbid_guessing,
    )
    storages = [storage for finder in finders.get_finders() for _, storage in finder.list(None)]
    # Django takes the first application that has the file, WhiteNoise the last.
    for location in reversed(dict.fromkeys(storage.location for storage in storages)):
        files.add_files(location, prefix=settings.STATIC_URL)
    return files


def _found(files: WhiteNoise, path: str) -> StaticFile | None:
    return files.find_file(path) if files.autorefresh else files.files.get(path)


def _forbid_guessing(headers: Headers, path: str, url: str) -> None:
    headers["X-Content-Type-Options"] = "nosniff"


def _asked(scope: Scope) -> dict[str, str]:
    """The request's headers, named as WhiteNoise looks for them."""
    return {
        "HTTP_" + name.decode("latin1").upper().replace("-", "_"): value.decode("latin1")
        for name, value in scope["headers"]
    }


async def _send(response: Response, send: Send) -> None:
    """Read in one go: the largest of our files has 0.3 MB, and a thread would cost more."""
    with contextlib.closing(response.file) if response.file else contextlib.nullcontext():
        body = response.file.read() if response.file else b""
    headers = [(name.lower().encode(), value.encode()) for name, value in response.headers]
    await send({"type": "http.response.start", "status": int(response.status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
