"""One reader for each session or cycle that is watched here, however many watch it.

A feed looks at the database a few times a second, renders what is new once, and keeps the last of
it. Viewers wait for its word and take what they have not had. One that comes late or falls behind
reads by itself until it has caught up: nobody waits for a slow one, and none has a queue that
grows. The last one to leave ends the feed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection

from sessions_app.access.own_thread import own_context
from sessions_app.pages.live_look import Look, Message, Subject, look_at
from sessions_app.pages.live_position import Position

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
MESSAGES_KEPT = 1_000
CHARACTERS_KEPT = 2_000_000


class Feed:
    def __init__(self, subject: Subject, after: Position) -> None:
        self.subject = subject
        self.last = self._first = after
        """Looked at up to here, and kept from here on."""
        self.done = False
        self.viewers = 0
        self._kept: deque[Message] = deque()
        self._told = 0
        """How many messages there have been, those that are not kept any more included."""
        self._size = 0
        self._news = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._read(), context=own_context())

    async def wait(self, seconds: float) -> None:
        """For news, or until the time is up."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return

    def since(self, after: Position, place: int = 0) -> Look | None:
        """What came after a position. None: more than is kept.

        `place` is where the viewer's last look at this feed ended, so that the next is short.
        """
        if not after.covers(self._first):
            return None
        newest = islice(reversed(self._kept), max(0, self._told - place))
        unseen = [message for message in newest if message.number > after.of(message.session)]
        return Look(
            messages=tuple(unseen[::-1]),
            last=after.joined(self.last),
            done=self.done,
            place=self._told,
        )

    def has_news(self, after: Position) -> bool:
        return self.done or not after.covers(self.last)

    def stop(self) -> None:
        self._task.cancel()

    async def _read(self) -> None:
        while not self.done:
            try:
                look = await sync_to_async(_look_afresh)(self.subject, self.last)
            except DatabaseError:
                # A database that is locked or restarted is looked at again; nobody is sent away.
                logger.warning("%s could not be looked at", self.subject, exc_info=True)
            else:
                self._tell(look)
            if not self.done:
                await asyncio.sleep(POLL_SECONDS)

    def _tell(self, look: Look) -> None:
        self._keep(look.messages)
        self.last, self.done = look.last, look.done
        if look.messages or look.done:
            news, self._news = self._news, asyncio.Event()
            news.set()

    def _keep(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._kept.append(message)
            self._told += 1
            self._size += len(message.data)
        while len(self._kept) > MESSAGES_KEPT or self._size > CHARACTERS_KEPT:
            gone = self._kept.popleft()
            self._first = self._first.moved(gone.session, gone.number)
            self._size -= len(gone.data)


def _look_afresh(subject: Subject, after: Position) -> Look:
    """A connection that broke is not kept: the next look makes a new one."""
    try:
        return look_at(subject, after)
    except DatabaseError:
        connection.close()
        raise


Feeds = dict[Subject, Feed]
_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, Feeds] = WeakKeyDictionary()


@dataclass(slots=True)
class Seat:
    """A viewer's place at a feed, shared with everybody else who watches the same."""

    subject: Subject
    after: Position
    feed: Feed | None = None

    def __enter__(self) -> Feed:
        feeds = _feeds.setdefault(asyncio.get_running_loop(), {})
        feed = feeds.get(self.subject)
        if feed is None or feed.done:
            feed = feeds[self.subject] = Feed(self.subject, self.after)
        feed.viewers += 1
        self.feed = feed
        return feed

    def __exit__(self, *_error: object) -> None:
        feed = self.feed
        assert feed is not None
        feed.viewers -= 1
        if feed.viewers:
            return
        feed.stop()
        feeds = _feeds.get(asyncio.get_running_loop(), {})
        if feeds.get(self.subject) is feed:
            del feeds[self.subject]
