"""The stream of a whole cycle: the next tier's events follow, and every line comes exactly once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.urls import reverse

from escalation.web import live
from escalation.web.live import LivePosition, Subject, Ticket, live_events, look_at, read_position
from sessions_app.access.roles import Right
from sessions_app.models import Cycle, Session
from tests.escalation.web.test_live import open_stream
from tests.factories import CycleFactory, SessionEventFactory, SessionFactory

pytestmark = pytest.mark.django_db

NAMED = re.compile(r'id="((?:event|tier)-[\d-]+)"')


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(live, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(live, "LAST_WORDS", timedelta(0))


@pytest.fixture
def cycle() -> Cycle:
    return CycleFactory(running=True)


def a_tier(cycle: Cycle, tier: int = 1, parent: Session | None = None) -> Session:
    return SessionFactory(running=True, cycle=cycle, tier=tier, parent_session=parent)


def say(session: Session, *numbers: int) -> None:
    for number in numbers:
        SessionEventFactory(session=session, sequence=number, said=f"line {number}")


def viewer(cycle: Cycle, after: LivePosition | None = None) -> AsyncIterator[str]:
    ticket = Ticket(user_pk=0, auth_hash="", right=Right.SEE_OUTPUT)
    return live_events(Subject(cycle.pk, is_cycle=True), after or LivePosition(), ticket)


async def seen_by(stream: AsyncIterator[str], until: str = "") -> tuple[list[str], str]:
    """The lines that a browser gets, and the last id that it would say again."""
    names: list[str] = []
    last = ""
    async for sent in stream:
        for message in sent.split("\n\n"):
            ids = re.findall(r"^id: (.*)$", message, re.MULTILINE)
            last = ids[-1] if ids else last
            names += NAMED.findall(message)
            if until and until in names:
                return names, last
    return names, last


def test_a_new_tier_follows_on_the_same_stream_after_its_heading(cycle):
    first = a_tier(cycle)

    async def story() -> None:
        watching = asyncio.ensure_future(seen_by(viewer(cycle)))
        await sync_to_async(say)(first, 1, 2)
        second = await sync_to_async(a_tier)(cycle, 2, first)
        await sync_to_async(say)(second, 1)
        await asyncio.sleep(0.05)
        await sync_to_async(cycle.finish)("healthy", "All is well.")

        names, _last = await watching
        assert names == [
            *(f"tier-{first.pk}", f"event-{first.pk}-1", f"event-{first.pk}-2"),
            *(f"tier-{second.pk}", f"event-{second.pk}-1"),
        ]

    async_to_sync(story)()


def test_a_late_event_of_the_tier_before_is_not_lost(cycle):
    """It is written after the first of the next tier, so one number could not tell it apart."""
    first = a_tier(cycle)
    second = a_tier(cycle, 2, first)
    say(first, 1)
    say(second, 1)

    async def story() -> None:
        before, last = await seen_by(viewer(cycle), until=f"event-{second.pk}-1")
        await sync_to_async(say)(first, 2)
        after, _last = await seen_by(
            viewer(cycle, read_position(last)), until=f"event-{first.pk}-2"
        )

        assert after == [f"event-{first.pk}-2"]
        assert len(before) == len(set(before)) == 4

    async_to_sync(story)()


@pytest.mark.parametrize("broken_after", range(1, 7))
def test_every_line_comes_exactly_once_wherever_the_connection_breaks(cycle, broken_after):
    """As after a restart of the server: the last id is all that is left."""
    first = a_tier(cycle)
    second = a_tier(cycle, 2, first)
    say(first, 1, 2)
    say(second, 1, 2)
    cycle.finish("healthy", "All is well.")

    async def story() -> None:
        everything, _last = await seen_by(viewer(cycle))
        before, last = await seen_by(viewer(cycle), until=everything[broken_after - 1])
        after, _last = await seen_by(viewer(cycle, read_position(last)))

        assert before + after == everything
        assert len(everything) == 6

    async_to_sync(story)()


def test_viewers_that_came_at_different_times_get_the_same_lines(cycle):
    first = a_tier(cycle)
    say(first, 1)

    async def story() -> None:
        early = asyncio.ensure_future(seen_by(viewer(cycle)))
        await asyncio.sleep(0.03)
        second = await sync_to_async(a_tier)(cycle, 2, first)
        await sync_to_async(say)(second, 1)
        late = asyncio.ensure_future(seen_by(viewer(cycle, LivePosition({first.pk: 1}))))
        await asyncio.sleep(0.03)
        await sync_to_async(say)(first, 2)
        await asyncio.sleep(0.03)
        await sync_to_async(cycle.finish)("healthy", "All is well.")

        whole, rest = (await early)[0], (await late)[0]
        assert len(whole) == len(set(whole)) == 5
        assert set(rest) == set(whole[2:])
        assert len(rest) == 3

    async_to_sync(story)()


def test_the_stream_does_not_end_between_two_tiers(cycle):
    SessionFactory(escalated=True, cycle=cycle)

    assert not look_at(Subject(cycle.pk, is_cycle=True), LivePosition()).done


def test_the_stream_waits_for_the_first_session(cycle):
    assert not look_at(Subject(cycle.pk, is_cycle=True), LivePosition()).done
    assert look_at(Subject(99, is_cycle=True), LivePosition()).done


def test_the_view_continues_after_the_last_event_of_each_session(operator, cycle):
    first = a_tier(cycle)
    second = a_tier(cycle, 2, first)
    say(first, 1, 2)
    say(second, 1, 2)
    cycle.finish("healthy", "All is well.")
    url = reverse("web:cycle_live", args=[cycle.pk])

    _response, text = open_stream(
        operator, f"{url}?after={first.pk}:1", {"Last-Event-ID": f"{first.pk}:2,{second.pk}:1"}
    )

    assert NAMED.findall(text) == [f"event-{second.pk}-2"]


@pytest.mark.parametrize("odd", ["", "x", "7", "1:", ":1", "1:-5", "9" * 90, "1:1\r\nid: 4"])
def test_an_invalid_event_id_is_ignored(operator, cycle, odd):
    session = a_tier(cycle)
    say(session, 1)
    cycle.finish("healthy", "All is well.")
    url = reverse("web:cycle_live", args=[cycle.pk])

    _response, text = open_stream(operator, url, {"Last-Event-ID": odd})

    assert f"event-{session.pk}-1" in text


def test_hostile_text_stays_in_its_message(cycle):
    session = a_tier(cycle)
    SessionEventFactory(session=session, sequence=1, said="<script>\r\nevent: x\n\nid: 9")

    message = look_at(Subject(cycle.pk, is_cycle=True), LivePosition()).messages[1]

    assert "<script>" not in message.data
    assert all(line.startswith("data: ") for line in message.data.rstrip("\n").split("\n"))
