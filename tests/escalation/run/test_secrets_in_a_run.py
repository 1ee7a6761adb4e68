"""Output is redacted before it is stored; decisions read the original."""

from __future__ import annotations

import json

import pytest

from escalation.run import recorder as spool
from escalation.run.recorder import Recorder
from sessions_app.models import Session, SessionEvent
from sessions_app.models.session import EventKind
from tests.escalation.runs import run
from tests.factories import ChannelFactory, SessionFactory

pytestmark = pytest.mark.django_db

SECRET = "hunter22-and-more"


def stored_text(session: Session) -> str:
    """Everything that the database holds of a session and its cycle."""
    rows = [
        *Session.objects.filter(pk=session.pk).values(),
        *session.events.values(),
        *Session.objects.filter(parent_session=session).values(),
        type(session.cycle).objects.filter(pk=session.cycle_id).values().get(),
    ]
    return json.dumps(rows, default=str)


LEAKING = {
    "in its words and its report": (
        f"init(); say('password={SECRET}');"
        f"result({{**ESCALATE, 'summary': 'password={SECRET}', 'escalation': {{'needed': True,"
        f" 'reason': 'password={SECRET}', 'services': []}}}}, result='password={SECRET}')"
    ),
    "in a command and its output": (
        f"init(); say(); tool('mysql -p{SECRET}', 'token: {SECRET}'); result(HEALTHY)"
    ),
    "in a report that is not valid": (f"init(); say(); result({{'summary': 'password={SECRET}'}})"),
    "in the output of a command that prints secrets": (
        f"init(); say(); tool('kubectl get secret shop -o jsonpath={{.data.a}}', '{SECRET}');"
        "result(HEALTHY)"
    ),
    "in an error of the API": (
        f"init(); say(); result(None, is_error=True, result='API Error: 401 api_key={SECRET}')"
    ),
}


@pytest.mark.parametrize("program", LEAKING.values(), ids=LEAKING.keys())
def test_no_secret_of_a_session_is_stored(fake_cli, session, program):
    fake_cli.then(program)

    ended = run(session)

    assert SECRET not in stored_text(ended)
    assert "[redacted: " in stored_text(ended)


def test_secret_in_a_report_does_not_change_the_decision(fake_cli, session):
    fake_cli.then(LEAKING["in its words and its report"])

    ended = run(session)

    assert ended.status == Session.Status.ESCALATED
    assert ended.report is not None
    assert ended.report["escalation"]["reason"] == "password=[redacted: password]"


def test_every_stored_text_is_redacted(db):
    session = SessionFactory(running=True)
    heard: list[str] = []
    recorder = Recorder(session, lambda event: heard.append(json.dumps(event.payload)))
    recorder.stream_line(json.dumps({"type": "user", "password": SECRET}).encode())
    recorder.stream_line(f"noise: password={SECRET}".encode())
    recorder.stderr_line(f"password={SECRET}".encode())
    recorder.note(
        EventKind.COMMAND, f"Allowed: PGPASSWORD={SECRET} psql", command=f"PGPASSWORD={SECRET} psql"
    )
    recorder.message_from_transcript({"type": "user", "text": f"token={SECRET}"})

    recorder.close()

    assert session.events.count() == len(heard) == 5
    assert SECRET not in stored_text(session) + "".join(heard) + recorder.stderr


def test_output_of_a_call_that_a_dead_runner_recorded_is_redacted(db):
    session = SessionFactory(running=True)
    call = {"type": "tool_use", "id": "toolu_1", "input": {"command": "cat server.key"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": SECRET}
    first = Recorder(session)
    first.stream_line(json.dumps({"type": "assistant", "message": {"content": [call]}}).encode())
    first.close()
    second = Recorder(session)
    for event in session.events.all():
        second.hear_again(event)

    second.stream_line(json.dumps({"type": "user", "message": {"content": [result]}}).encode())
    second.close()

    assert session.events.count() == 2
    assert SECRET not in stored_text(session)


def test_spooled_events_are_redacted(db):
    session = SessionFactory(running=True)
    events: list[SessionEvent] = []
    recorder = Recorder(session, events.append)
    recorder.stderr_line(f"password={SECRET}".encode())

    spool.write_spool(session, events)

    assert SECRET not in spool.spool_path(session).read_text()


def test_stream_facts_use_the_original_line(db):
    recorder = Recorder(SessionFactory(running=True))

    parsed = recorder.stream_line(f'{{"type": "result", "result": "password={SECRET}"}}'.encode())

    assert parsed.payload["result"] == f"password={SECRET}"


def test_a_secret_split_over_two_lines_is_redacted(db, monkeypatch):
    key = "sk-ant-api03-Zq8rZq8rZq8rZq8r"
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    session = SessionFactory(running=True)
    recorder = Recorder(session)

    for half in (key[:14], key[14:]):
        recorder.stderr_line(half.encode())
    recorder.close()

    said = [event.payload["text"] for event in session.events.order_by("sequence")]
    assert said == [key[:14], "[redacted: ANTHROPIC_API_KEY]"]


def test_the_address_of_a_channel_is_redacted(fake_cli, session):
    ChannelFactory(address="ntfy://a-topic-is-a-password")
    fake_cli.then("init(); say('it posts to ntfy://a-topic-is-a-password'); result(HEALTHY)")

    ended = run(session)

    assert "a-topic-is-a-password" not in stored_text(ended)
    assert "[redacted: notification address]" in stored_text(ended)
