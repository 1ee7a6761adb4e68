"""The streams behind pages that show what is going on."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.http import HttpRequest, StreamingHttpResponse
from django.shortcuts import aget_object_or_404
from django.views.decorators.http import require_GET

from sessions_app.access.guard import needs
from sessions_app.access.roles import Right
from sessions_app.access.still_allowed import ticket_for
from sessions_app.models import Cycle, Session
from sessions_app.pages.live import live_events
from sessions_app.pages.live_look import Subject
from sessions_app.pages.live_position import Position


@needs(Right.SEE_OUTPUT)
@require_GET
async def session_live(request: HttpRequest, pk: int) -> StreamingHttpResponse:
    await aget_object_or_404(Session.objects.only("pk"), pk=pk)
    return await _stream(request, Subject(pk))


@needs(Right.SEE_OUTPUT)
@require_GET
async def cycle_live(request: HttpRequest, pk: int) -> StreamingHttpResponse:
    await aget_object_or_404(Cycle.objects.only("pk"), pk=pk)
    return await _stream(request, Subject(pk, is_cycle=True))


async def _stream(request: HttpRequest, subject: Subject) -> StreamingHttpResponse:
    ticket = await sync_to_async(ticket_for)(request, Right.SEE_OUTPUT)
    return StreamingHttpResponse(
        live_events(subject, _seen_before(request, subject), ticket),
        content_type="text/event-stream",
        # A proxy that collects the answer before passing it on would make live output pointless.
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


def _seen_before(request: HttpRequest, subject: Subject) -> Position:
    """What the browser has seen last; a reconnect knows better than the address of the page."""
    seen = subject.position_in(request.headers.get("Last-Event-ID"))
    return seen or subject.position_in(request.GET.get("after")) or Position()
