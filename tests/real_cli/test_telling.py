"""The real CLI is told something by a person while it runs."""

from __future__ import annotations

import pytest

from escalation.agent.binary import ClaudeBinary
from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.supervisor import manual
from sessions_app.models import Session
from tests.escalation.rows import notes_of
from tests.factories import SessionFactory
from tests.real_cli.conftest import report_call


def waits(seconds: int) -> Reply:
    command = {"command": f"sleep {seconds}", "description": "Wait"}
    return Reply(say="I wait.", calls=(ScriptedToolCall(tool="Bash", input=command),))


DONE = Reply(say="Done.", calls=(report_call(),))


@pytest.mark.usefixtures("cli_version")
def test_a_running_session_reads_a_message_before_its_next_request(scripted_api, watch_cycle):
    api = scripted_api(waits(2), DONE)
    told: list[str] = []

    def hear(line: str) -> None:
        if "sleep 2" in line and not told:
            told.append(line)
            manual.tell(Session.objects.latest("pk"), "/clear the @db first", by="grace")

    cycle = watch_cycle.run(listener=hear)

    session = cycle.sessions.get()
    requests = [request.text() for request in api.requests if request.main]
    assert "/clear the @ db first" not in requests[0]
    assert "/clear the @ db first" in requests[1]
    assert "(grace)" in requests[1]
    assert (session.status, cycle.outcome) == ("completed", "healthy")
    assert notes_of(session, "told") == ["/clear the @db first"]
    assert session.events.get(kind="told").payload["by"] == "grace"
    assert not notes_of(session, "warning")


def without_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every installed CLI takes messages: this one is said not to."""
    monkeypatch.setattr(ClaudeBinary, "takes_messages", False)


@pytest.mark.parametrize("cli_version", ["2.0.77"], indirect=True)
def test_a_cli_that_takes_no_messages_is_stopped_at_its_turn_and_continued_with_it(
    scripted_api, watch_cycle, monkeypatch, cli_version
):
    without_messages(monkeypatch)
    slow = Reply(say="I look again.", delay=3, calls=waits(1).calls)
    api = scripted_api(waits(2), slow, DONE)
    told: list[str] = []

    def hear(line: str) -> None:
        if "sleep 2" in line and not told:
            told.append(manual.tell(Session.objects.latest("pk"), "Look at the db.", by="grace"))

    cycle = watch_cycle.run(tier=2, listener=hear)

    first, second = cycle.sessions.order_by("pk")
    assert (first.status, first.stop_cause) == ("interrupted", "told")
    assert (second.purpose, second.tier, second.continued_by) == ("recovery", 2, "resume")
    assert "(grace)" in second.prompt
    assert "Look at the db." in second.prompt
    assert (second.status, cycle.outcome) == ("completed", "healthy")
    assert not notes_of(first, "warning")
    assert "Look at the db." in api.requests[-1].text()


def test_a_question_to_a_cli_that_takes_no_messages_is_not_interrupted(db):
    asked = SessionFactory(running=True, purpose="follow_up", argv=["claude", "-p"])
    working = SessionFactory(running=True, argv=["claude", "-p"])

    assert (asked.can_be_told, working.can_be_told) == (False, True)


def test_a_message_after_the_result_is_recorded_as_too_late(scripted_api, watch_cycle):
    scripted_api(DONE)
    told: list[str] = []

    def hear(line: str) -> None:
        if "Run ended" in line and not told:
            told.append(line)
            manual.tell(Session.objects.latest("pk"), "Wait.", by="grace")

    session = watch_cycle.run(listener=hear).sessions.get()

    assert (told != [], session.status) == (True, "completed")
    assert notes_of(session, "told") == ["Wait."]
    assert len(notes_of(session, "warning")) == 1
