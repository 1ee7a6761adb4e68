"""Live output over server-sent events: what one viewer is sent.

The run is another process, so the database is where its events come from. One reader looks there
for all viewers of a session or a cycle (`live_feed`); whether each of them still may is asked for
all of them together (`still_allowed`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator

from asgiref.sync import sync_to_async

from sessions_app.access.own_thread import give_thread_back
from sessions_app.access.still_allowed import Ticket
from sessions_app.pages.live_feed import Feed, Seat
from sessions_app.pages.live_look import Look, Message, Subject, data_lines, look_at, sse_message
from sessions_app.pages.live_position import Position

WAIT_SECONDS = 5.0
"""Without news one looks up now and then: is it still allowed, is it time for a heartbeat?"""
HEARTBEAT_SECONDS = 15.0
NO_DATA = data_lines("")
LONGEST_STREAM_SECONDS = 600.0
"""Then the browser connects again, which also asks again whether it may."""


async def live_events(subject: Subject, after: Position, ticket: Ticket) -> AsyncIterator[str]:
    """Messages that came together are sent together."""
    await give_thread_back()  # here: the middleware has used it after the view
    last_sent = time.monotonic()
    ends = last_sent + LONGEST_STREAM_SECONDS
    yield "retry: 1000\n\n"
    place = 0
    with ticket, Seat(subject, after) as feed:
        while ticket.is_good and time.monotonic() < ends:
            look = await _next_look(feed, after, place)
            if look.messages:
                last_sent = time.monotonic()
                yield "".join(_sent(subject, after, look.messages))
            elif time.monotonic() - last_sent >= HEARTBEAT_SECONDS:
                last_sent = time.monotonic()
                yield ": still here\n\n"
            after, place = look.last, look.place
            if look.done:
                yield sse_message("done", NO_DATA, subject.mark(after))
                return
            if not feed.has_news(after):
                await feed.wait(min(WAIT_SECONDS, ends - time.monotonic()))


def _sent(subject: Subject, after: Position, messages: Iterable[Message]) -> Iterator[str]:
    """Each with an id of this viewer's: what it has been sent, not what the reader has seen."""
    for message in messages:
        after = after.moved(message.session, message.number)
        yield sse_message("entry", message.data, subject.mark(after))


async def _next_look(feed: Feed, after: Position, place: int) -> Look:
    """From what is kept, or by a look of one's own where that is not enough."""
    kept = feed.since(after, place)
    return kept if kept is not None else await sync_to_async(look_at)(feed.subject, after)
