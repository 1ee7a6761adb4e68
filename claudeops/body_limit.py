"""A body that is too long is refused while it arrives.

Django's ASGI handler writes whole bodies to disk before any view or setting is asked; none of our
forms needs more than some kilobytes, and no page takes files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import BadRequest
from django.core.files.uploadhandler import FileUploadHandler

from claudeops.static_files import Application, Receive, Scope, Send

LONGEST_BODY = 1024 * 1024
SAID = b"The request is too long: at most 1 MB is taken.\n"


def with_body_limit(application: Application) -> Application:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
        elif _declared(scope) > LONGEST_BODY:
            await _refuse(send)
        else:
            counted = _Counted(receive)
            await application(scope, counted.receive, send)
            if counted.is_too_long:
                await _refuse(send)

    return answer


def _declared(scope: Scope) -> int:
    """What the request says of itself; a length that is no number is too long."""
    text = dict(scope["headers"]).get(b"content-length", b"0")
    return int(text) if text.isdigit() and len(text) < 20 else LONGEST_BODY + 1


class _Counted:
    """To Django, a body that is too long looks as if the browser had gone: it closes what it has
    and answers nothing."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._seen = receive, 0

    @property
    def is_too_long(self) -> bool:
        return self._seen > LONGEST_BODY

    async def receive(self) -> Mapping[str, Any]:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        return {"type": "http.disconnect"} if self.is_too_long else message


async def _refuse(send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": SAID})


class NoFiles(FileUploadHandler):
    """The only handler of uploads: no form has a file in it."""

    def new_file(self, *args: Any, **options: Any) -> None:
        raise BadRequest("No page takes files.")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        return None

    def file_complete(self, file_size: int) -> None:
        return None
