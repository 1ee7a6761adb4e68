"""The events of a cycle as they happen, by server-sent events."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, StreamingHttpResponse
from django.shortcuts import get_object_or_404

from escalation.api.app import PROBLEMS, AsyncBearerToken, _documented, api, token_row
from escalation.api.reading import Number
from escalation.web.live import Subject, stream_of
from sessions_app.access.roles import Right
from sessions_app.models import Cycle

STREAM = {"text/event-stream": {"schema": {"type": "string"}}}


def _extra() -> dict[str, Any]:
    extra = _documented("Event", [], problems_of=PROBLEMS)
    extra["responses"][200] = {
        "description": "Messages `entry` with an Event as data, and `done` at the end.",
        "content": STREAM,
    }
    extra["parameters"] = [
        {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "description": "The id of the last message that was received.",
            "schema": {"type": "string", "pattern": "^[0-9:,-]*$", "maxLength": 4000},
        }
    ]
    return extra


async def follow_cycle(request: HttpRequest, number: Number) -> StreamingHttpResponse:
    """Follow the events of a cycle until it ends. A token that is revoked ends the stream."""
    await sync_to_async(get_object_or_404)(Cycle.objects.only("pk"), pk=number)
    row = token_row(request)
    return await stream_of(
        request,
        Subject(number, is_cycle=True, is_data=True),
        Right.SEE_OUTPUT,
        token_pk=row.pk if row else None,
    )


follow_cycle.__annotations__["number"] = Number
follow_cycle.needed_right = Right.SEE_OUTPUT  # type: ignore[attr-defined]
api.get(
    "cycles/{number}/events",
    auth=AsyncBearerToken(Right.SEE_OUTPUT),
    tags=["cycles"],
    operation_id="follow_cycle",
    summary="Follow cycle",
    description=follow_cycle.__doc__ or "",
    url_name="follow_cycle",
    openapi_extra=_extra(),
)(follow_cycle)
