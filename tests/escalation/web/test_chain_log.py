"""The output of a chain, part by part, across its tiers."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from escalation.web import cycle as chain_log
from escalation.web.cycle import lanes_of, load_chain_log
from escalation.web.live import chips_of, log_entries, one_row_a_call
from sessions_app.history.commands import JudgedCommand
from sessions_app.models import SessionEvent
from tests.factories import SessionEventFactory, SessionFactory, user_with

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def long_chain(monkeypatch):
    monkeypatch.setattr(chain_log, "EVENTS_SHOWN", 3)
    first = SessionFactory(escalated=True)
    second = SessionFactory(tier=2, parent_session=first)
    for session in (first, second):
        for number in range(1, 5):
            SessionEventFactory(session=session, sequence=number, said=f"t{session.tier}-{number}.")
    return second


def test_a_long_chain_shows_its_last_output_with_a_link_to_the_rest(operator_client, long_chain):
    cycle = long_chain.cycle

    page = operator_client.get(cycle.get_absolute_url()).content.decode()

    assert "t2-2." in page
    assert "t2-1." not in page
    assert f"{cycle.get_absolute_url()}events/?before={long_chain.pk}:2" in page


def test_earlier_output_is_loaded_in_parts_across_tiers(operator_client, long_chain):
    url = reverse("web:cycle_events", args=[long_chain.cycle_id])

    page = operator_client.get(url, {"before": f"{long_chain.pk}:2"}, headers=HTMX).content.decode()

    assert "<html" not in page
    assert all(words in page for words in ("t1-3.", "t1-4.", "t2-1."))
    assert f'id="tier-{long_chain.pk}"' in page
    assert "t1-2." not in page


@pytest.mark.parametrize("odd", ["", "x", "-1", "1:x", "9" * 30, "²:1"])
def test_an_invalid_position_is_not_an_error(operator_client, long_chain, odd):
    url = reverse("web:cycle_events", args=[long_chain.cycle_id])

    assert operator_client.get(url, {"before": odd}).status_code == 200


def test_a_call_is_one_row_with_its_verdict_exit_code_and_result():
    session = SessionFactory(tier=2)

    def call(number: str, name: str) -> dict[str, object]:
        block = {"type": "tool_use", "id": number, "name": "Bash", "input": {"command": name}}
        return {"type": "assistant", "message": {"content": [block]}}

    def result(number: str, text: str) -> dict[str, object]:
        block = {"type": "tool_result", "tool_use_id": number, "content": text}
        return {"type": "user", "message": {"content": [block]}}

    decided = {"verdict": "allow", "command": "docker ps"}
    told = (
        ("stream", "assistant", call("a", "docker ps")),
        ("supervisor", "command", decided),
        ("supervisor", "command_end", {"exit_code": 0}),
        ("stream", "user", result("a", "web is up")),
        ("stream", "assistant", call("b", "one")),
        ("stream", "assistant", call("c", "two")),
        ("supervisor", "command", decided),
        ("stream", "user", result("c", "second")),
        ("stream", "user", result("lost", "of no call")),
    )
    events = [
        SessionEventFactory(session=session, sequence=n, source=source, kind=kind, payload=payload)
        for n, (source, kind, payload) in enumerate(told)
    ]

    rows = one_row_a_call(log_entries(events))

    assert [chip.tone for chip in rows[0].chips[:2]] == ["good", "good"]
    assert rows[0].chips[1].words == "exit 0"
    texts = [row.result.text if row.result else "" for row in rows]
    assert texts == ["web is up", "", "second", "", ""]
    assert [row.is_plumbing for row in rows] == [False, False, False, True, False]


def judged(command, verdict, call, parent="", exit_code=None) -> JudgedCommand:
    unused: dict[str, Any] = {"rule": "", "reason": "", "grants": (), "actions": (), "cwd": ""}
    return JudgedCommand(
        command=command,
        verdict=verdict,
        call=call,
        parent=parent,
        exit_code=exit_code,
        at=timezone.now(),
        milliseconds=None,
        **unused,
    )


def test_a_call_shows_one_verdict_and_one_exit_code_or_each_program_with_its_own():
    shell = judged("docker ps; true", "isolate", "1", exit_code=0)
    listed = judged("docker ps", "allow", "2", "1", exit_code=0)
    refused = judged("docker restart web", "deny", "3", "1")
    failed = judged("docker logs web", "allow", "4", "1", exit_code=1)
    table = (
        ([shell], ["isolated", "exit 0"]),
        ([shell, listed], ["allowed", "exit 0"]),
        ([shell, listed, listed], ["allowed", "exit 0"]),
        ([shell, refused], ["denied", "exit 0"]),
        (
            [shell, listed, refused],
            ["docker ps: allowed, exit 0", "docker restart web: denied", "exit 0"],
        ),
        ([shell, failed], ["docker logs web: allowed, exit 1", "exit 0"]),
        ([], []),
    )

    assert [[chip.words for chip in chips_of(commands)] for commands, _ in table] == [
        words for _, words in table
    ]


def test_calls_are_bars_in_the_lane_of_their_tier():
    session = SessionFactory(cost_usd=Decimal("0.5"))
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "docker ps"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "", "is_error": True}
    begin = timezone.now()
    for number, (kind, block) in enumerate((("assistant", call), ("user", result))):
        payload = {"type": kind, "message": {"content": [block]}}
        event = SessionEventFactory(session=session, sequence=number, kind=kind, payload=payload)
        at = begin + timedelta(seconds=number)
        SessionEvent.objects.filter(pk=event.pk).update(created_at=at)

    [lane] = lanes_of(load_chain_log(session.cycle, [session]))

    assert (lane.session, lane.so_far_usd) == (session, Decimal("0.5"))
    assert [(bar.tone, bar.x, bar.width) for bar in lane.bars] == [("bad", 0, 100)]
    assert "docker ps" in lane.bars[0].words


def test_the_lanes_follow_while_the_cycle_runs(operator_client):
    session = SessionFactory(running=True)
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "docker ps"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": ""}
    for number, (kind, block) in enumerate((("assistant", call), ("user", result))):
        payload = {"type": kind, "message": {"content": [block]}}
        SessionEventFactory(session=session, sequence=number, kind=kind, payload=payload)

    url = f"{session.cycle.get_absolute_url()}?part=lanes"

    lanes = operator_client.get(url, headers=HTMX).content.decode()

    assert lanes.startswith('<div id="lanes"')
    assert "docker ps" in lanes
    version = lanes.partition("version=")[2].partition('"')[0]
    assert operator_client.get(f"{url}&version={version}", headers=HTMX).status_code == 204
    session.finish("completed")
    session.cycle.finish("healthy", "All is well.")
    assert "hx-get" not in operator_client.get(url, headers=HTMX).content.decode()
    viewer = Client()
    viewer.force_login(user_with("viewer"))
    assert "docker ps" not in viewer.get(url, headers=HTMX).content.decode()


def test_a_log_without_calls_has_no_lanes():
    session = SessionFactory()

    assert lanes_of(load_chain_log(session.cycle, [session])) == ()
