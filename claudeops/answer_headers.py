"""Security headers on every answer, whoever gives it: pages, errors, static files, live output.

Outside Django, because not everything passes its middleware: static files, requests that cannot be
read, bodies that are too long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claudeops.middleware import CONTENT_SECURITY_POLICY
from claudeops.static_files import Application, Receive, Scope, Send

HEADERS = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
}


def with_answer_headers(application: Application) -> Application:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Mapping[str, Any]) -> None:
            await send(_completed(message))

        await application(scope, receive, send_with_headers)

    return answer


def _completed(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a page said for itself stays."""
    if message["type"] != "http.response.start":
        return message
    given = list(message.get("headers", ()))
    names = {bytes(name).lower() for name, _value in given}
    missing = [(name, value) for name, value in HEADERS.items() if name not in names]
    return {**message, "headers": [*given, *missing]}
