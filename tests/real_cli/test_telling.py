"""The real CLI is told something by a person while it runs."""

from __future__ import annotations

import pytest

from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.supervisor import manual
from sessions_app.models import Session
from tests.escalation.rows import notes_of
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
