"""Live output over server-sent events, read from the database.

The run is another process, so the database is where its events come from. Protocol of one look:

1. Read the status first and the events after it. The other way round, an event written just
   before the end could be missed.
2. Send each event as one message whose id is its sequence number; a browser that lost the
   connection says the last id it saw, and continues from there.
3. When the status read in step 1 is final, and has been for a moment, say `done`. The moment is
   for the last words of the supervisor, which are written after the end that they are about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

from asgiref.sync import sync_to_async
from django.template.loader import render_to_string
from django.utils import timezone

from sessions_app.models import Session, SessionEvent
from sessions_app.pages.session_page import LogEntry, log_entries

POLL_SECONDS = 0.25
HEARTBEAT_SECONDS = 15.0
LONGEST_STREAM_SECONDS = 600.0
"""Then the browser connects again, which also asks again whether it may."""
EVENTS_PER_LOOK = 200
LAST_WORDS = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Look:
    messages: tuple[str, ...]
    last: int
    """The sequence number of the last event sent."""
    done: bool


async def live_events(session_pk: int, after: int) -> AsyncIterator[str]:
    started = last_sent = time.monotonic()
    yield "retry: 1000\n\n"
    while time.monotonic() - started < LONGEST_STREAM_SECONDS:
        look = await sync_to_async(look_at)(session_pk, after)
        after = look.last
        for message in look.messages:
            yield message
        if look.done:
            yield sse_message("done", "", after)
            return
        if look.messages:
            last_sent = time.monotonic()
        elif time.monotonic() - last_sent >= HEARTBEAT_SECONDS:
            last_sent = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(POLL_SECONDS)


def look_at(session_pk: int, after: int) -> Look:
    ended = _has_ended(session_pk)
    events = list(
        SessionEvent.objects.filter(session=session_pk, sequence__gt=after).order_by("sequence")[
            :EVENTS_PER_LOOK
        ]
    )
    return Look(
        messages=tuple(_entry_message(entry) for entry in log_entries(events)),
        last=events[-1].sequence if events else after,
        done=ended and len(events) < EVENTS_PER_LOOK,
    )


def _has_ended(session_pk: int) -> bool:
    session = Session.objects.filter(pk=session_pk).only("status", "finished_at").first()
    if session is None:
        return True
    if session.is_open:
        return False
    return session.finished_at is None or timezone.now() - session.finished_at >= LAST_WORDS


def _entry_message(entry: LogEntry) -> str:
    html = render_to_string("sessions_app/_log_entry.html", {"entry": entry})
    return sse_message("entry", html, entry.event.sequence)


def sse_message(name: str, data: str, number: int) -> str:
    """One message; an empty one still needs its data line, or browsers drop it."""
    lines = "".join(f"data: {line}\n" for line in data.strip().split("\n"))
    return f"event: {name}\nid: {number}\n{lines}\n"
