"""Streams: the events of a cycle, and the tools of MCP over HTTP."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import AsyncClient

from escalation.web import live
from sessions_app.access import tokens
from sessions_app.models import ApiToken, Incident
from tests.escalation.api.conftest import token_of
from tests.factories import IncidentFactory, SessionEventFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db(transaction=True)
DATA = "data: "


def in_one_thread(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Let the story use the connection of the test."""

    @functools.wraps(story)
    def run(**fixtures: Any) -> None:
        async_to_sync(story)(**fixtures)

    return run


async def opened(path: str, token: str, **headers: str) -> Any:
    return await AsyncClient().get(path, headers={"Authorization": f"Bearer {token}", **headers})


def entries(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the id and the data of each event."""
    found = []
    for message in text.split("\n\n"):
        lines = message.splitlines()
        if "event: entry" in lines:
            mark = next(line for line in lines if line.startswith("id: "))
            data = next(line for line in lines if line.startswith(DATA))
            found.append((mark.removeprefix("id: "), json.loads(data.removeprefix(DATA))))
    return found


@in_one_thread
async def test_events_of_an_ended_cycle_are_sent_and_resumed_after_the_last_id():
    def prepare() -> tuple[str, int, str]:
        session = SessionFactory(failed=True)
        for sequence in (1, 2):
            SessionEventFactory(session=session, sequence=sequence)
        token = token_of("operator", ["read"])
        return token, session.cycle_id, f"{session.pk}:1"

    token, cycle, seen = await sync_to_async(prepare)()
    path = f"/api/v1/cycles/{cycle}/events"

    whole = await opened(path, token)
    text = "".join([chunk.decode() async for chunk in whole.streaming_content])
    rest = await opened(path, token, **{"Last-Event-ID": seen})
    later = "".join([chunk.decode() async for chunk in rest.streaming_content])

    assert whole["Content-Type"] == "text/event-stream"
    assert [data["sequence"] for _mark, data in entries(text)] == [1, 2]
    assert entries(text)[0][1]["cycle"] == cycle
    assert [data["sequence"] for _mark, data in entries(later)] == [2]
    assert "event: done" in text


@in_one_thread
async def test_a_revoked_token_ends_its_stream(monkeypatch):
    monkeypatch.setattr(live, "ASK_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(live, "WAIT_SECONDS", 0.05)

    def prepare() -> tuple[str, int]:
        session = SessionFactory(running=True)
        SessionEventFactory(session=session, sequence=1)
        return token_of("operator", ["read"]), session.cycle_id

    token, cycle = await sync_to_async(prepare)()
    stream = await opened(f"/api/v1/cycles/{cycle}/events", token)
    chunks = aiter(stream.streaming_content)
    first = [(await anext(chunks)).decode(), (await anext(chunks)).decode()]

    row = await ApiToken.objects.select_related("user").aget(token_hash=tokens.hashed(token))
    await sync_to_async(tokens.revoke)(row, by=None)

    async def until_the_end() -> list[bytes]:
        return [chunk async for chunk in chunks]

    await asyncio.wait_for(until_the_end(), timeout=20)
    assert entries("".join(first))
    assert (await opened(f"/api/v1/cycles/{cycle}/events", token)).status_code == 401


async def asked(token: str, method: str, **params: Any) -> Any:
    answer = await AsyncClient().post(
        "/mcp",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
        content_type="application/json",
        headers={
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18",
        },
    )
    return answer


@in_one_thread
async def test_mcp_offers_tools_by_scope_and_acts_for_the_owner(monkeypatch):
    def prepare() -> tuple[str, str, int]:
        WatchFactory(name="shop")
        made = IncidentFactory()
        return token_of("operator", ["read"]), token_of("operator", ["read", "run"]), made.pk

    reading, acting, number = await sync_to_async(prepare)()

    offered = {}
    for token in (reading, acting):
        listed = (await asked(token, "tools/list")).json()["result"]["tools"]
        offered[token] = {tool["name"] for tool in listed}
    called = await asked(acting, "tools/call", name="acknowledge", arguments={"number": number})
    watches = await asked(reading, "tools/call", name="watches", arguments={})
    refused = await asked(reading, "tools/call", name="acknowledge", arguments={"number": number})

    assert offered[acting] - offered[reading] == {"run_cycle", "follow_up", "acknowledge"}
    assert called.json()["result"]["isError"] is False, called.content
    assert (await Incident.objects.aget(pk=number)).state == "acknowledged"
    assert json.loads(watches.json()["result"]["content"][0]["text"])[0]["name"] == "shop"
    assert refused.json().get("error") or refused.json()["result"]["isError"]
    for token in (reading[:-1], ""):
        assert (await asked(token, "tools/list")).status_code == 401
    assert (await AsyncClient().get("/mcp")).status_code == 405
