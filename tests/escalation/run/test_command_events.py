"""Decisions of the command policy become events, from any thread."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from escalation.run.command_checks import (
    BypassCheck,
    CommandEvents,
    RecordedCommands,
    RunChanges,
    waited_only,
)
from escalation.run.recorder import Recorder
from escalation.sandbox.command_runner import CommandEnd, DecisionRecord
from sessions_app.models import SessionEvent
from sessions_app.models.session import Verdict
from tests.factories import SessionFactory
from tests.tables import each_row

pytestmark = pytest.mark.django_db


def record(verdict: Verdict = Verdict.ALLOW, command: str = "docker ps") -> DecisionRecord:
    return DecisionRecord(
        command=command,
        verdict=verdict,
        rule="understood" if verdict == Verdict.ALLOW else "needs Tier 2",
        reason="" if verdict == Verdict.ALLOW else "Ask for escalation.",
        grant="docker" if verdict == Verdict.ALLOW else "",
        actions=(command,),
        decision_ms=1.234,
        cwd="/srv/shop",
        at=datetime.now(UTC),
    )


@pytest.fixture
def session():
    return SessionFactory(running=True)


@pytest.fixture
def recorder(session) -> Recorder:
    return Recorder(session)


@pytest.fixture
def events(session, recorder) -> CommandEvents:
    return CommandEvents(recorder, BypassCheck(), RunChanges(session))


def stored(session) -> list[SessionEvent]:
    return list(session.events.filter(kind__startswith="command").order_by("sequence"))


def test_a_decision_event_contains_the_whole_decision(session, recorder, events):
    events.on_decision(record())
    events.write()
    recorder.close()

    (event,) = stored(session)
    assert event.source == SessionEvent.Source.SUPERVISOR
    assert event.payload["text"] == "Allowed with docker: docker ps"
    assert {key: event.payload[key] for key in ("command", "verdict", "rule", "grants", "cwd")} == {
        "command": "docker ps",
        "verdict": "allow",
        "rule": "understood",
        "grants": ["docker"],
        "cwd": "/srv/shop",
    }
    assert event.payload["milliseconds"] == 1.23


def test_an_end_event_refers_to_its_decision(session, recorder, events):
    decided = record()
    events.on_decision(decided)
    events.on_end(decided, CommandEnd(exit_code=3, run_ms=12.34, location="sandbox"))
    events.write()
    recorder.close()

    begun, ended = stored(session)
    assert begun.payload["call"] == ended.payload["call"]
    assert (ended.payload["exit_code"], ended.payload["milliseconds"]) == (3, 12.3)


def test_denied_command_has_no_end_event(session, recorder, events):
    denied = record(Verdict.DENY, "docker restart web")
    events.on_decision(denied)
    events.on_end(denied, CommandEnd(exit_code=126, run_ms=0, location=""))
    events.write()
    recorder.close()

    (event,) = stored(session)
    assert event.payload["level"] == "warning"
    assert event.payload["text"] == "Denied (needs Tier 2): docker restart web"


def test_decisions_of_many_threads_are_all_stored_and_counted(session, recorder):
    bypass = BypassCheck()
    events = CommandEvents(recorder, bypass, RunChanges(session))
    threads = [
        threading.Thread(target=events.on_decision, args=(record(command=f"ls {number}"),))
        for number in range(50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events.write()
    recorder.close()

    assert {event.payload["command"] for event in stored(session)} == {
        f"ls {number}" for number in range(50)
    }


def begun(call: str, command: str, verdict: str = "ask", parent: str = "") -> dict[str, Any]:
    return {call: {"call": call, "command": command, "verdict": verdict, "parent": parent}}


TEXT = begun("1", "cd /srv && docker restart web", "isolate")
WAITS = begun("2", "docker restart web", parent="1")


@each_row(
    ("commands", "ended", "taken", "only"),
    [
        (TEXT | WAITS, {}, (), True),
        (TEXT | WAITS, {"2": False}, (), True),
        (TEXT | WAITS, {"2": False, "1": True}, (), True),
        (TEXT | WAITS, {"2": True}, (), False),
        (TEXT | WAITS, {}, ("docker restart web",), False),
        (TEXT | WAITS | begun("3", "docker restart db", "allow", "1"), {}, (), False),
        (TEXT | WAITS | begun("3", "docker restart db", "allow", "1"), {"3": True}, (), True),
        (TEXT | WAITS | begun("3", "rm -rf /", "deny", "1"), {}, (), True),
        (TEXT, {}, (), False),
        ({}, {}, (), False),
    ],
)
def test_a_call_only_waited_if_nothing_of_it_had_begun(commands, ended, taken, only):
    record = RecordedCommands(begun=commands, ended=ended, taken=taken)

    assert waited_only(["cd /srv  && docker restart web"], record) is only


def test_a_call_that_is_not_in_the_record_has_not_only_waited():
    record = RecordedCommands(begun=TEXT | WAITS, ended={})

    assert not waited_only(["sleep 5"], record)
