from __future__ import annotations

from typing import Any

import pytest
from django.db.models import Subquery
from django.utils import timezone

from escalation.agent.event_text import STARTS, current_step, last_steps
from sessions_app.models import Session
from tests.factories import SessionEventFactory, SessionFactory
from tests.tables import each_row


def saying(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": list(blocks)}}


def calling(name: str, **given: Any) -> dict[str, Any]:
    return saying({"type": "tool_use", "name": name, "input": given})


def test_a_tool_call_is_shown_by_its_main_argument():
    now = timezone.now()

    step = current_step(calling("Bash", command="probe web"), now)

    assert (step.command, step.words, step.since) == ("probe web", "it uses the tool Bash", now)


@each_row(
    ("payload", "words"),
    [
        (None, STARTS),
        ({"type": "assistant"}, STARTS),
        (["nonsense"], "it works"),
        (saying({"type": "text", "text": "So."}), "it writes"),
        (saying({"type": "thinking", "thinking": "Hm."}), "it thinks"),
        (saying({"type": "new kind"}), "it works"),
        (calling("StructuredOutput", summary="x"), "it writes its report"),
        (
            {"type": "user", "message": {"content": [{"type": "tool_result", "content": "ok"}]}},
            "it reads what came back",
        ),
    ],
)
def test_other_events_are_described_in_words(payload, words):
    step = current_step(payload, None)

    assert (step.command, step.words) == ("", words)


def test_a_hostile_command_is_one_short_line():
    step = current_step(calling("Bash", command="echo \x1b[2Ja\r\nevent: x " + "y" * 100_000), None)

    assert "\n" not in step.command
    assert "\x1b" not in step.command
    assert len(step.command) <= 120


@pytest.mark.django_db
def test_only_running_sessions_have_a_current_step():
    running, ended = SessionFactory(running=True), SessionFactory()
    for session in (running, ended):
        SessionEventFactory(session=session, sequence=1)
        last = SessionEventFactory(session=session, sequence=2)
        SessionEventFactory(session=session, sequence=3, kind="system/init")

    step = Subquery(last_steps().values("sequence")[:1])
    found = dict(Session.objects.annotate(step=step).values_list("pk", "step"))

    assert found == {running.pk: 2, ended.pk: None}
    assert last.sequence == 2
