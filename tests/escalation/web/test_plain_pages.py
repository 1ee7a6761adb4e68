"""No page and no live line contains raw control characters of a tool, a model or a person."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.http import HttpResponse
from django.urls import reverse

from escalation.web.live import LivePosition, Subject, data_lines, look_at, sse_message
from escalation.web.responses import plain_pages
from sessions_app.models import SessionEvent
from tests.factories import CycleFactory, SessionFactory, WatchFactory

HOSTILE = "\x1b]0;owned\x07 \x9b2J \u202ekcatta\u2066 \r\x08 \u200bx"
SAID = {"type": "text", "text": HOSTILE}
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def session(db):
    watch = WatchFactory(name=f"shop{HOSTILE}", workdir=f"/srv/{HOSTILE}", instructions=HOSTILE)
    cycle = CycleFactory(watch=watch, outcome_reason=HOSTILE, prompt=HOSTILE)
    session = SessionFactory(
        cycle=cycle, error=HOSTILE, escalation_reason=HOSTILE, request=HOSTILE, model_used=HOSTILE
    )
    events: dict[str, dict[str, Any]] = {
        "stderr": {"text": HOSTILE},
        "noise": {"text": HOSTILE},
        "supervisor": {"text": HOSTILE},
        "stream": {"type": "assistant", "message": {"content": [SAID]}},
    }
    for source, payload in events.items():
        SessionEvent.objects.create(
            session=session,
            source=source,
            kind=str(payload.get("type", "note")),
            payload=payload,
            sequence=session.events.count() + 1,
        )
    return session


def test_no_page_shows_a_raw_control_character(session, operator_client):
    addresses = [
        reverse("web:overview"),
        reverse("web:sessions"),
        reverse("admin:sessions_app_watch_changelist"),
        session.get_absolute_url(),
        session.cycle.get_absolute_url(),
    ]
    pages = [operator_client.get(address, follow=True).content.decode() for address in addresses]

    assert [page for page in pages if RAW.search(page)] == []
    assert "‹U+202E›" in pages[3]


def test_no_live_line_has_a_raw_control_character(session):
    messages = [message.data for message in look_at(Subject(session.pk), LivePosition()).messages]

    assert len(messages) == 4
    assert all("‹U+202E›" in message and not RAW.search(message) for message in messages)


def test_a_live_message_cannot_end_its_line_by_a_carriage_return():
    message = sse_message("entry", data_lines("a\revent: done"), "1")

    assert message.count("event:") == 2
    assert "data: event: done" in message


def test_a_response_that_is_not_text_is_unchanged(rf):
    answer = HttpResponse(b"\x1b\x9b", content_type="application/octet-stream")

    plain_pages(lambda request: answer)(rf.get("/"))

    assert answer.content == b"\x1b\x9b"


def test_the_content_length_is_right_after_characters_were_replaced(operator_client):
    """In a field of a form, where no filter stands before it."""
    watch = WatchFactory(name="a\u202eb")

    page = operator_client.get(reverse("web:watch_settings", args=[watch.pk]))

    assert "a‹U+202E›b" in page.content.decode()
    assert int(page["Content-Length"]) == len(page.content)
