"""Live output: the tests read the stream as a browser would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import AsyncClient
from django.urls import reverse
from django.utils import timezone

from escalation.web import live
from escalation.web.live import (
    LivePosition,
    Subject,
    Ticket,
    data_lines,
    live_events,
    look_at,
    sse_message,
)
from sessions_app.access.roles import Right
from tests.factories import SessionEventFactory, SessionFactory, user_with

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(live, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(live, "LAST_WORDS", timedelta(0))


async def read_all(stream: AsyncIterator[str], limit: int = 50) -> list[str]:
    """Message by message, however many were sent together."""
    messages: list[str] = []
    async for sent in stream:
        messages += [f"{message}\n\n" for message in sent.removesuffix("\n\n").split("\n\n")]
        if len(messages) >= limit:
            break
    return messages


def a_ticket() -> Ticket:
    return Ticket(user_pk=0, auth_hash="", right=Right.SEE_OUTPUT)


def streamed(session, after: int = -1, limit: int = 50) -> list[str]:
    return async_to_sync(read_all)(
        live_events(Subject(session.pk), LivePosition({session.pk: after}), a_ticket()), limit
    )


def open_stream(operator, url: str, headers: dict[str, str] | None = None):
    async def get():
        client = AsyncClient()
        await client.aforce_login(operator)
        response: Any = await client.get(url, headers=headers or {})
        if not response.streaming:
            return response, ""
        return response, b"".join([part async for part in response]).decode()

    return async_to_sync(get)()


def test_a_finished_session_is_streamed_to_its_end():
    session = SessionFactory()
    SessionEventFactory(session=session, sequence=1, said="first words")
    SessionEventFactory(session=session, sequence=2, said="last words")

    messages = streamed(session)

    assert "first words" in messages[1]
    assert "last words" in messages[2]
    assert messages[3] == "event: done\nid: 2\ndata: \n\n"


def test_each_message_has_its_number_as_id():
    session = SessionFactory()
    SessionEventFactory(session=session, sequence=41)

    assert streamed(session)[1].startswith("event: entry\nid: 41\ndata: <li")


def test_the_stream_continues_after_the_last_seen_event():
    session = SessionFactory()
    SessionEventFactory(session=session, sequence=1, said="seen already")
    SessionEventFactory(session=session, sequence=2, said="news")

    text = "".join(streamed(session, after=1))

    assert "news" in text
    assert "seen already" not in text


def test_events_written_during_the_session_appear():
    session = SessionFactory(running=True)

    async def watch_it_run() -> list[str]:
        stream = live_events(Subject(session.pk), LivePosition(), a_ticket())
        opening = await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await sync_to_async(SessionEventFactory)(session=session, sequence=1, said="just now")
        news = await waiting
        await sync_to_async(session.finish)("completed")
        return [opening, news, *await read_all(stream)]

    messages = async_to_sync(watch_it_run)()

    assert "just now" in messages[1]
    assert messages[-1].startswith("event: done")


def test_the_stream_does_not_end_while_the_session_runs():
    assert not look_at(Subject(SessionFactory(running=True).pk), LivePosition()).done


def test_the_stream_waits_for_the_last_events_of_the_supervisor(monkeypatch):
    monkeypatch.setattr(live, "LAST_WORDS", timedelta(seconds=1))
    ended_just_now = SessionFactory()
    ended_before = SessionFactory(finished_at=timezone.now() - timedelta(seconds=2))

    assert not look_at(Subject(ended_just_now.pk), LivePosition()).done
    assert look_at(Subject(ended_before.pk), LivePosition()).done


def test_the_stream_does_not_end_before_all_events_were_sent(monkeypatch):
    monkeypatch.setattr(live, "EVENTS_PER_LOOK", 2)
    session = SessionFactory()
    for number in range(5):
        SessionEventFactory(session=session, sequence=number)

    messages = streamed(session)

    assert sum(message.startswith("event: entry") for message in messages) == 5
    assert messages[-1].startswith("event: done")


def test_an_event_without_text_is_left_out():
    session = SessionFactory()
    SessionEventFactory(session=session, sequence=3, kind="stream_event")

    look = look_at(Subject(session.pk), LivePosition())

    assert (look.messages, look.last) == ((), LivePosition({session.pk: 3}))


def test_a_silent_session_sends_a_heartbeat(monkeypatch):
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.0)

    assert streamed(SessionFactory(running=True), limit=2)[1] == ": still here\n\n"


def test_a_long_stream_ends_so_that_the_browser_reconnects(monkeypatch):
    monkeypatch.setattr(live, "LONGEST_STREAM_SECONDS", 0.05)

    messages = streamed(SessionFactory(running=True))

    assert not any("done" in message for message in messages)


def test_the_stream_of_a_deleted_session_ends():
    session = SessionFactory(running=True)
    session.delete()

    assert look_at(Subject(99_999), LivePosition()).done


def test_hostile_text_is_escaped_within_its_message():
    session = SessionFactory()
    SessionEventFactory(session=session, sequence=1, said="<script>\r\n\revent: done\n\nid: 9")

    message = streamed(session)[1]

    assert "<script>" not in message
    assert all(line.startswith("data: ") for line in message.rstrip("\n").split("\n")[2:])


def test_each_line_of_a_message_is_a_data_line():
    text = sse_message("entry", data_lines("one\ntwo"), "3")

    assert text == "event: entry\nid: 3\ndata: one\ndata: two\n\n"


def test_the_view_streams_without_being_buffered(operator):
    session = SessionFactory()
    SessionEventFactory(session=session, sequence=1, said="words")

    response, text = open_stream(operator, reverse("web:session_live", args=[session.pk]))

    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert "words" in text


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("?after=1", {}),
        ("", {"Last-Event-ID": "1"}),
        ("?after=0", {"Last-Event-ID": "1"}),
    ],
)
def test_the_view_continues_after_the_last_event_id(operator, query, headers):
    session = SessionFactory()
    SessionEventFactory(session=session, sequence=1, said="seen already")
    SessionEventFactory(session=session, sequence=2, said="news")
    url = reverse("web:session_live", args=[session.pk]) + query

    _response, text = open_stream(operator, url, headers)

    assert "news" in text
    assert "seen already" not in text


@pytest.mark.parametrize("odd", ["x", "-5", "1e9", "9" * 40])
def test_an_invalid_event_id_is_ignored(operator, odd):
    session = SessionFactory()
    SessionEventFactory(session=session, sequence=1, said="words")
    url = reverse("web:session_live", args=[session.pk])

    _response, text = open_stream(operator, f"{url}?after={odd}", {"Last-Event-ID": odd})

    assert "words" in text


def test_the_stream_of_an_unknown_session_is_not_found(operator):
    response, _text = open_stream(operator, reverse("web:session_live", args=[99]))

    assert response.status_code == 404


def test_an_anonymous_visitor_gets_no_stream(client):
    url = reverse("web:session_live", args=[SessionFactory().pk])

    assert async_to_sync(AsyncClient().get)(url).status_code == 302


def test_a_stream_ends_when_the_right_is_revoked(monkeypatch):
    monkeypatch.setattr(live, "ASK_AGAIN_SECONDS", 0)
    session, viewer = SessionFactory(running=True), user_with("viewer")
    ticket = Ticket(viewer.pk, viewer.get_session_auth_hash(), Right.SEE_OUTPUT)

    async def all_of_it() -> list[str]:
        return [
            message async for message in live_events(Subject(session.pk), LivePosition(), ticket)
        ]

    assert async_to_sync(all_of_it)() == ["retry: 1000\n\n"]
