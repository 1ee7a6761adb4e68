"""The page of a session: how it was continued, its cost, and the actions that continue it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from sessions_app.models import Conversation
from tests.factories import CycleFactory, SessionFactory, UserFactory, user_with
from tests.sessions_app.tool_events import store_commands

pytestmark = pytest.mark.django_db

HOSTILE = "<img src=x onerror=alert(1)>"


def page_of(client, session) -> str:
    return client.get(session.get_absolute_url()).content.decode()


def test_it_shows_its_context_and_its_repeated_calls(operator_client):
    first = SessionFactory(escalated=True, context_tokens=85_000)
    second = SessionFactory(
        tier=2, parent_session=first, continued_by="resume", cost_usd=Decimal("0.02")
    )
    store_commands(first, "df -h", "uptime")
    store_commands(second, "df -h", "reboot")

    page = page_of(operator_client, second)

    assert "85.0k tokens of context carried over" in page
    assert "1 of 2 tool calls repeated earlier work, about $0.01" in page


def test_it_shows_why_it_was_not_resumed(operator_client):
    session = SessionFactory(
        parent_session=SessionFactory(),
        continued_by="handoff",
        continued_guard="context_over_threshold",
        continued_why="The conversation fills 85% of the window.",
        continuation_facts={"context_tokens": 170_000, "cli_can_resume": True},
        handoff={"report": {"summary": "The disk is full."}},
    )

    page = page_of(operator_client, session)

    assert '<span class="badge tone-warn">context_over_threshold</span>' in page
    assert "The conversation fills 85% of the window." in page
    assert '<th scope="row">context tokens</th><td>170000</td>' in page
    assert "The disk is full." in page


def test_the_first_session_of_a_chain_shows_no_handoff(operator_client):
    page = page_of(operator_client, SessionFactory())

    assert "Handoff that this run was given" not in page
    assert "What was seen" not in page


def test_req8_the_gauge_marks_compactions(operator_client):
    session = SessionFactory(context_tokens=85_000, context_window=200_000, compactions=2)

    page = page_of(operator_client, session)

    assert 'value="0.4250"' in page
    assert "compacted 2 times" in page


def test_req8_the_gauge_is_marked_at_the_threshold(operator_client, settings):
    settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD = Decimal("0.5")
    session = SessionFactory(context_tokens=85_000, context_window=200_000)

    page = page_of(operator_client, session)

    assert 'high="0.5000"' in page
    assert "resumed up to 50%" in page


def test_it_shows_how_the_cost_was_derived(operator_client):
    session = SessionFactory(cost_basis="difference", baseline_cost_usd=Decimal("0.47"))

    page = page_of(operator_client, session)

    assert "reported total minus the total of the parent" in page
    assert "the conversation had cost $0.47 before this run" in page


def test_it_shows_messages_and_activity(operator_client):
    now = timezone.now()
    session = SessionFactory(
        turns=9,
        messages=17,
        first_activity_at=now - timedelta(minutes=7),
        last_activity_at=now - timedelta(minutes=2),
    )

    page = page_of(operator_client, session)

    assert "17 messages" in page
    assert ">7 min ago</time>" in page
    assert ">2 min ago</time>" in page


def test_it_shows_the_request_and_its_author(operator_client):
    session = SessionFactory(
        purpose="follow_up", request="Since when?", requested_by=UserFactory(username="ada")
    )

    page = page_of(operator_client, session)

    assert "Since when?" in page
    assert "asked for by ada" in page


@pytest.mark.parametrize("state", ["live", "retired", "expired"])
def test_it_shows_the_state_of_the_conversation(operator_client, state):
    session = SessionFactory()
    Conversation.objects.create(
        session_id=session.session_id, state=state, reason="Prompt is too long."
    )

    page = page_of(operator_client, session)

    assert f"</span> {state}</span>" in page
    assert "Prompt is too long." in page


def test_it_links_to_the_transcript(operator_client):
    session = SessionFactory()

    page = page_of(operator_client, session)

    assert f'href="{reverse("web:transcript", args=[session.pk])}"' in page


def test_it_offers_the_possible_actions(operator_client):
    session = SessionFactory(failed=True, tier=2)

    page = page_of(operator_client, session)

    for name in ("follow_up", "fork_session", "retry_session", "escalate_session"):
        assert f'action="{reverse(f"web:{name}", args=[session.pk])}"' in page


def test_a_form_shows_its_length_limit(operator_client):
    page = page_of(operator_client, SessionFactory(failed=True))

    assert "at most 50 tokens, which are about 170 letters of English" in page
    assert page.count("at most 1,200 tokens") == 2


def test_a_text_that_is_too_long_stays_in_its_form(operator_client):
    session = SessionFactory(failed=True)
    reason = "再起動してください。" * 20

    page = operator_client.post(
        reverse("web:escalate_session", args=[session.pk]), {"request": reason, "confirm": "on"}
    ).content.decode()

    assert "at most 50 tokens" in page
    assert f"required>{reason}</textarea>" in page
    assert '<details id="action-escalate_session" class="action" open>' in page
    assert not session.children.exists()


def test_a_message_that_is_too_long_stays_in_its_form(operator_client):
    session = SessionFactory(running=True, argv=["claude", "--input-format", "stream-json"])
    message = "再起動してください。" * 200

    page = operator_client.post(
        reverse("web:tell_session", args=[session.pk]), {"text": message}
    ).content.decode()

    assert "(at most 1,200 tokens" in page
    assert f"required>{message}</textarea>" in page
    assert not session.events.exists()


def test_only_actions_that_may_change_the_system_ask_for_a_confirmation(operator_client):
    page = page_of(operator_client, SessionFactory(failed=True))

    forms = page.split("<form")
    assert [("confirm" in form, "fresh" in form) for form in forms if "action-form" in form] == [
        (False, False),  # follow up
        (False, False),  # fork
        (False, True),  # retry
        (True, True),  # escalate
    ]


def test_the_command_that_opens_a_terminal_is_shown_with_a_button_to_copy_it(operator_client):
    session = SessionFactory(
        session_id="0a0a0a0a-0000-4000-8000-000000000001",
        context_tokens=10,
        context_window=200_000,
        host="alpha",
        cli_fingerprint="f",
    )
    Conversation.objects.create(session_id=session.session_id, state="live")

    page = page_of(operator_client, session)

    command = f"claudeops session attach {session.pk}"
    assert f'<code id="attach-command">{command}</code>' in page
    assert 'data-copy="attach-command"' in page


def test_no_terminal_is_offered_where_nothing_can_be_resumed_or_nothing_may_run(
    operator_client, client
):
    running, lost = SessionFactory(running=True), SessionFactory(session_id="")
    client.force_login(user_with("viewer"))

    for visitor, session in (
        (operator_client, running),
        (operator_client, lost),
        (client, SessionFactory()),
    ):
        assert "attach-command" not in page_of(visitor, session)


def test_a_running_session_offers_no_action(operator_client):
    assert "Continue from here" not in page_of(operator_client, SessionFactory(running=True))


def test_a_retired_conversation_is_reported_beside_the_actions(operator_client):
    session = SessionFactory()
    Conversation.objects.create(session_id=session.session_id, state="retired")

    assert "begins a new one and gets a handoff" in page_of(operator_client, session)


def test_hostile_text_is_escaped_everywhere(operator_client):
    user = UserFactory(username=HOSTILE)
    session = SessionFactory(
        parent_session=SessionFactory(cycle=CycleFactory(workdir=HOSTILE)),
        tier=2,
        purpose="fork",
        continued_by="handoff",
        continued_guard=HOSTILE,
        continuation_facts={HOSTILE: HOSTILE},
        handoff={HOSTILE: HOSTILE},
        request=HOSTILE,
        requested_by=user,
    )
    Conversation.objects.create(session_id=session.session_id, state="retired", reason=HOSTILE)
    store_commands(session, HOSTILE)

    assert "<img src=x" not in page_of(operator_client, session)


# PostgreSQL holds no half of a pair, and the stream is cleaned of them (`agent.stream`).
HALF = [{"half": "\ud83d"}] if connection.vendor == "sqlite" else [{"half": "\ufffd"}]


@pytest.mark.parametrize("odd", [[1, 2], "text", 7, *HALF])
def test_facts_and_handoffs_of_any_shape_are_shown(operator_client, odd):
    session = SessionFactory(continuation_facts=odd, handoff=odd)

    assert operator_client.get(session.get_absolute_url()).status_code == 200
