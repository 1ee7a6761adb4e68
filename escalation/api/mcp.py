"""`/mcp`: the tools of `claudeops mcp` over HTTP, for the account of a token."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from escalation.api import problems
from escalation.api.app import admit, finished
from escalation.api.problems import Problem
from escalation.api.tools import ACTING, server_of
from sessions_app.access.roles import Right, may

Message = Mapping[str, Any]


@csrf_exempt
@login_not_required
async def serve(request: HttpRequest) -> Any:
    """Answer one message. There are no sessions: each request carries its token."""
    try:
        if request.method != "POST":
            raise Problem(
                HTTPStatus.METHOD_NOT_ALLOWED,
                problems.METHOD_NOT_ALLOWED,
                "Messages of the Model Context Protocol are sent with POST.",
                headers={"Allow": "POST"},
            )
        server, body = await sync_to_async(_prepared)(request)
    except Problem as problem:
        return finished(request, problems.answer(request, problem))
    return finished(request, await _answered(server, request, body))


def _prepared(request: HttpRequest) -> tuple[Any, bytes]:
    """Return the server with the tools that the token allows, and the body."""
    account = admit(request, Right.SEE_OUTPUT, acts=True)
    try:
        body = request.body
    except RequestDataTooBig as error:
        raise Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problems.TOO_LARGE, "At most 1 MB is taken."
        ) from error
    allowed = [name for name, (right, _tool) in ACTING.items() if may(account, right)]
    return server_of(allowed, account), body


async def _answered(server: Any, request: HttpRequest, body: bytes) -> HttpResponse:
    """Pass the request to the library's ASGI application, and collect its answer."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    # Django has checked the host already.
    manager = StreamableHTTPSessionManager(
        server._lowlevel_server, json_response=True, stateless=True
    )
    sent: list[Message] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async with manager.run():
        await manager.handle_request(_scope(request), receive, send)  # type: ignore[arg-type]
    start = next(one for one in sent if one["type"] == "http.response.start")
    content = b"".join(one.get("body", b"") for one in sent)
    response = HttpResponse(content, status=start["status"])
    del response["Content-Type"]
    for name, value in start.get("headers", ()):
        if name.lower() != b"content-length":
            response[name.decode("latin-1")] = value.decode("latin-1")
    response["Cache-Control"] = "no-store"
    return response


def _scope(request: HttpRequest) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in request.headers.items()
        ],
        "server": None,
        "client": None,
    }


app_name = "mcp"
urlpatterns = [path("", serve, name="serve")]
