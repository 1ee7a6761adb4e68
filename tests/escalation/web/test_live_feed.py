"""One reader serves all viewers of a session, and no viewer affects another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import DatabaseError

from escalation.web import live
from escalation.web.live import LivePosition, Subject, Ticket, live_events
from sessions_app.access.roles import Right
from tests.factories import SessionEventFactory, SessionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(live, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(live, "LAST_WORDS", timedelta(0))


@pytest.fixture
def looks(monkeypatch) -> list[int]:
    """From which number on each look at the database was."""
    seen: list[int] = []
    original = live.look_at

    def look_at(subject: Subject, after: LivePosition) -> live.Look:
        seen.append(after.of(subject.pk))
        return original(subject, after)

    monkeypatch.setattr(live, "look_at", look_at)
    return seen


def viewer(session, after: int = -1) -> AsyncIterator[str]:
    ticket = Ticket(user_pk=0, auth_hash="", right=Right.SEE_OUTPUT)
    return live_events(Subject(session.pk), LivePosition({session.pk: after}), ticket)


async def numbers_of(stream: AsyncIterator[str], until: int | None = None) -> list[int]:
    """The ids that a browser sees, until one of them or to the end."""
    numbers: list[int] = []
    async for sent in stream:
        lines = sent.split("\n")
        entries = [at for at, line in enumerate(lines) if line == "event: entry"]
        numbers += [int(lines[at + 1].removeprefix("id: ")) for at in entries]
        if until is not None and until in numbers:
            break
    return numbers


def add_events(session, *numbers: int) -> None:
    for number in numbers:
        SessionEventFactory(session=session, sequence=number, said=f"line {number}")


def played(story: Callable[[], Awaitable[None]]) -> None:
    async_to_sync(story)()


def test_every_viewer_gets_every_line_exactly_once():
    session = SessionFactory(running=True)

    async def story() -> None:
        watching = [asyncio.ensure_future(numbers_of(viewer(session))) for _ in range(20)]
        for number in range(1, 6):
            await sync_to_async(add_events)(session, number)
            await asyncio.sleep(0.01)
        await sync_to_async(session.finish)("completed")

        assert [await seen for seen in watching] == [[1, 2, 3, 4, 5, 6]] * 20  # with our own word

    played(story)


def test_many_viewers_cause_as_many_queries_as_one(looks):
    session = SessionFactory(running=True)

    async def story() -> None:
        streams = [viewer(session) for _ in range(50)]
        for stream in streams:
            await anext(stream)
        watching = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0.05)
        looks.clear()
        await sync_to_async(add_events)(session, 1)
        await asyncio.gather(*watching)

        assert len(looks) < 10
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]

    played(story)


def test_a_late_viewer_gets_earlier_lines_and_then_the_rest():
    session = SessionFactory(running=True)
    add_events(session, 1, 2, 3)

    async def story() -> None:
        early = viewer(session, after=3)
        await anext(early)
        waiting = asyncio.ensure_future(anext(early))
        await asyncio.sleep(0.03)
        late = asyncio.ensure_future(numbers_of(viewer(session, after=1), until=4))
        await asyncio.sleep(0.03)
        await sync_to_async(add_events)(session, 4)

        assert await late == [2, 3, 4]
        assert "id: 4\n" in await waiting
        await early.aclose()  # type: ignore[attr-defined]

    played(story)


def test_a_slow_viewer_loses_nothing_and_delays_no_other(monkeypatch):
    monkeypatch.setattr(live, "MESSAGES_KEPT", 2)
    session = SessionFactory(running=True)

    async def story() -> None:
        slow, quick = viewer(session), viewer(session)
        await anext(slow)
        reading = asyncio.ensure_future(numbers_of(quick, until=8))
        await sync_to_async(add_events)(session, 1)
        first = await anext(slow)
        for number in range(2, 9):
            await sync_to_async(add_events)(session, number)
            await asyncio.sleep(0.01)
        assert await reading == list(range(1, 9))
        assert "id: 1\n" in first
        assert await numbers_of(slow, until=8) == list(range(2, 9))

    played(story)


def test_a_viewer_that_leaves_does_not_affect_the_others():
    session = SessionFactory(running=True)

    async def story() -> None:
        leaving, staying = viewer(session), viewer(session)
        for stream in (leaving, staying):
            await anext(stream)
        gone = asyncio.ensure_future(anext(leaving))
        waiting = asyncio.ensure_future(anext(staying))
        await asyncio.sleep(0.02)
        gone.cancel()
        await sync_to_async(add_events)(session, 1)

        assert "id: 1\n" in await waiting
        await staying.aclose()  # type: ignore[attr-defined]

    played(story)


def test_reading_ends_with_the_last_viewer():
    session = SessionFactory(running=True)

    async def story() -> None:
        stream = viewer(session)
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.02)
        assert len(live._feeds[asyncio.get_running_loop()]) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

        assert live._feeds[asyncio.get_running_loop()] == {}

    played(story)


def test_a_browser_that_reconnects_continues_where_it_was():
    """As after a restart of the server: the number is all that is left."""
    session = SessionFactory(running=True)
    add_events(session, 1, 2)

    async def story() -> None:
        before = await numbers_of(viewer(session), until=2)
        await sync_to_async(add_events)(session, 3, 4)
        after = await numbers_of(viewer(session, after=before[-1]), until=4)

        assert before + after == [1, 2, 3, 4]

    played(story)


def test_a_short_database_failure_disconnects_no_viewer(monkeypatch):
    session = SessionFactory(running=True)
    add_events(session, 1)
    failures = [DatabaseError("locked")]
    original = live.look_at

    def look_at(subject: Subject, after: LivePosition) -> live.Look:
        if failures:
            raise failures.pop()
        return original(subject, after)

    monkeypatch.setattr(live, "look_at", look_at)
    monkeypatch.setattr("escalation.web.live.connection.close", lambda: None)

    async def story() -> None:
        assert await numbers_of(viewer(session), until=1) == [1]

    played(story)


def test_long_lines_are_dropped_from_the_buffer(monkeypatch):
    monkeypatch.setattr(live, "CHARACTERS_KEPT", 100)

    async def story() -> None:
        feed = live.Feed(Subject(7), LivePosition({7: 0}))
        feed.stop()
        newer = live.LiveMessage(7, 2, "y" * 90)
        feed._keep([live.LiveMessage(7, 1, "x" * 90), newer])

        assert feed.since(LivePosition({7: 0})) is None
        assert feed.since(LivePosition({7: 1})) == live.Look(
            (newer,), LivePosition({7: 1}), False, place=2
        )

    played(story)
