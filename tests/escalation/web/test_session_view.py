"""The page of one session: its facts, its report and its log."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import connection
from django.urls import reverse

from escalation.web import sessions
from escalation.web.sessions import load_overview
from sessions_app.models import PauseSwitch
from tests.escalation.web.shown_chain import shown_chain
from tests.factories import CycleFactory, SessionEventFactory, SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
TEXT_FIELDS = (
    *("prompt", "result", "error", "escalation_reason", "continued_why", "session_id", "model"),
    *("model_used", "host", "cli_path", "cli_version", "workdir", "stop_reason", "stop_requested"),
)
HOSTILE = "<img src=x onerror=alert(1)>"


def page_of(client, session, **kwargs) -> str:
    return client.get(session.get_absolute_url(), **kwargs).content.decode()


def test_an_anonymous_visitor_is_sent_to_the_login(client):
    response = client.get(SessionFactory().get_absolute_url())

    assert response.headers["Location"].startswith(reverse("login"))


def test_an_unknown_session_is_not_found(operator_client):
    assert operator_client.get(reverse("web:session", args=[99])).status_code == 404


def test_it_shows_the_error_of_a_failed_run(operator_client):
    assert "The CLI broke." in page_of(operator_client, SessionFactory(failed=True))


def test_a_session_in_a_paused_queue_shows_the_pause(operator_client):
    PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE, paused=True, reason="new disks")
    session = SessionFactory(running=True, status="queued")

    page = operator_client.get(session.get_absolute_url()).content.decode()

    assert "It waits: Claude Ops is paused." in page
    assert "It waits for a free worker" not in page


def test_a_queued_session_shows_what_it_waits_for(operator_client):
    session = SessionFactory(running=True, status="queued")

    assert "waits for a free worker" in page_of(operator_client, session)


def test_it_shows_the_decision_of_the_supervisor(operator_client):
    assert "The tier asks for help." in page_of(operator_client, SessionFactory(escalated=True))


def test_it_shows_the_report(operator_client):
    report = {"summary": "web is down", "services": [{"name": "web", "status": "down"}]}

    page = page_of(operator_client, SessionFactory(report=report))

    assert "web is down" in page


def test_it_shows_the_context_gauge(operator_client):
    session = SessionFactory(context_tokens=85_000, context_window=200_000)

    assert 'value="0.4250"' in page_of(operator_client, session)


def test_it_shows_what_the_cli_printed_when_that_differs(operator_client):
    session = SessionFactory(cost_usd=Decimal("2"), reported_cost_usd=Decimal("2.5"))

    assert "the CLI printed $2.50" in page_of(operator_client, session)


def test_it_shows_the_exact_command(operator_client):
    session = SessionFactory(argv=["claude", "-p", "--disallowedTools", "Bash(helm:*)"])

    assert "claude -p --disallowedTools &#x27;Bash(helm:*)&#x27;" in page_of(
        operator_client, session
    )


def test_a_drill_is_marked(operator_client):
    assert 'class="badge drill"' in page_of(operator_client, SessionFactory(drill=True))


def test_it_escapes_hostile_text_everywhere(operator_client):
    report = {
        "summary": HOSTILE,
        "services": [{"name": HOSTILE, "status": HOSTILE, HOSTILE: HOSTILE}],
        "escalation": {"needed": True, "reason": HOSTILE},
        HOSTILE: HOSTILE,
    }
    texts = dict.fromkeys(TEXT_FIELDS, HOSTILE)
    cycle = CycleFactory(outcome_reason=HOSTILE, drill=HOSTILE)
    session = SessionFactory(cycle=cycle, report=report, argv=[HOSTILE], **texts)
    SessionEventFactory(session=session, said=HOSTILE, kind="assistant")
    SessionEventFactory(session=session, kind=HOSTILE)

    assert "<img src=x" not in page_of(operator_client, session)


def test_text_that_cannot_be_encoded_is_shown_with_a_replacement(operator_client):
    # PostgreSQL holds no half of a pair: what is left to show there is the mark in its place.
    halves = ("\ud800", "\udfff", "\ud83d")
    one, other, third = halves if connection.vendor == "sqlite" else ("\ufffd",) * 3
    session = SessionFactory(report={"summary": f"odd {one} half"}, argv=[other])
    SessionEventFactory(session=session, said=f"half {third} of a smile")

    page = page_of(operator_client, session)

    assert "odd \ufffd half" in page
    assert "half \ufffd of a smile" in page


def test_the_stream_of_a_running_session_starts_after_its_last_event(operator_client):
    session = SessionFactory(running=True)
    SessionEventFactory(session=session, sequence=7)

    page = page_of(operator_client, session)

    assert f'sse-connect="{session.get_absolute_url()}live/?after=7"' in page


def test_a_finished_session_opens_no_stream(operator_client):
    page = page_of(operator_client, SessionFactory())

    assert "sse-connect" not in page
    assert "hx-trigger" not in page


def test_a_finished_session_is_refreshed_while_its_cycle_runs(operator_client):
    session = SessionFactory(escalated=True, cycle=CycleFactory(running=True))

    assert "every 2s" in page_of(operator_client, session)


def test_an_htmx_request_gets_only_the_parts_that_change(operator_client):
    page = page_of(operator_client, SessionFactory(), headers=HTMX)

    assert "<html" not in page
    assert 'id="overview"' in page
    assert 'id="aside" hx-swap-oob="true"' in page


def test_an_unchanged_session_answers_no_content(operator_client):
    session = SessionFactory(running=True)
    version = load_overview(session).version

    response = operator_client.get(session.get_absolute_url(), {"version": version}, headers=HTMX)

    assert response.status_code == 204


def test_a_new_tier_changes_the_version():
    session = SessionFactory(escalated=True)
    before = load_overview(session).version

    SessionFactory(tier=2, parent_session=session)

    assert load_overview(session).version != before


@pytest.fixture
def long_session(monkeypatch):
    monkeypatch.setattr(sessions, "EVENTS_SHOWN", 3)
    session = SessionFactory()
    for number in range(1, 9):
        SessionEventFactory(session=session, sequence=number, said=f"word-{number}.")
    return session


def test_it_shows_the_last_events_of_a_long_session(operator_client, long_session):
    page = page_of(operator_client, long_session)

    assert "word-6." in page
    assert "word-5." not in page
    assert f"{long_session.get_absolute_url()}events/?before=6" in page


def test_earlier_events_are_loaded_in_parts(operator_client, long_session):
    url = reverse("web:session_events", args=[long_session.pk])

    page = operator_client.get(url, {"before": 6}, headers=HTMX).content.decode()

    assert "<html" not in page
    assert all(f"word-{number}." in page for number in (3, 4, 5))
    assert "?before=3" in page


def test_the_first_part_has_no_earlier_one(operator_client, long_session):
    url = reverse("web:session_events", args=[long_session.pk])

    assert "?before=" not in operator_client.get(url, {"before": 3}, headers=HTMX).content.decode()


def test_earlier_events_are_a_whole_page_without_javascript(operator_client, long_session):
    url = reverse("web:session_events", args=[long_session.pk])

    assert "<html" in operator_client.get(url, {"before": "6"}).content.decode()


@pytest.mark.parametrize("odd", ["", "x", "-1", "9" * 30, "²"])
def test_an_invalid_position_is_not_an_error(operator_client, long_session, odd):
    url = reverse("web:session_events", args=[long_session.pk])

    assert operator_client.get(url, {"before": odd}).status_code == 200


@pytest.mark.parametrize("position", [0, 1, 2])
def test_req4_first_middle_and_last_session_show_the_whole_chain(operator_client, position):
    sessions = three_tier_chain()

    shown = shown_chain(page_of(operator_client, sessions[position]))

    assert [step.name for step in shown.steps] == [
        f"Session #{session.pk} (Tier {session.tier})" for session in sessions
    ]
    assert [step.current for step in shown.steps] == [place == position for place in range(3)]
    facts = [("$0.03", "42 s"), ("$0.47", "1 min 35 s"), ("$2.00", "6 min 40 s")]
    for step, session, (cost, time) in zip(shown.steps, sessions, facts, strict=True):
        assert {session.model, cost, time, session.get_status_display()} <= step.words


def test_req5_a_session_shows_the_total_of_its_chain_by_tier(operator_client):
    _first, second, _third = three_tier_chain()

    shown = shown_chain(page_of(operator_client, second))

    assert shown.tiers == [
        ("Tier 1", "1", "$0.03"),
        ("Tier 2", "1", "$0.47"),
        ("Tier 3", "1", "$2.00"),
        ("Total", "3", "$2.50"),
    ]


def test_req4_the_page_of_a_branch_shows_the_whole_tree(operator_client):
    first, second, _third = three_tier_chain()
    fork = SessionFactory(tier=2, parent_session=second, purpose="fork")
    retry = SessionFactory(tier=2, parent_session=first, purpose="retry", failed=True)
    by_handoff = SessionFactory(tier=3, parent_session=retry, continued_by="handoff")

    for session in (first, fork, retry, by_handoff):
        shown = shown_chain(page_of(operator_client, session))

        assert len(shown.steps) == 6
        assert [step.name for step in shown.steps if step.current] == [
            f"Session #{session.pk} (Tier {session.tier})"
        ]
        assert f"from session #{second.pk}" in shown.text
        assert f"from session #{first.pk}" in shown.text
        assert shown.tiers[-1] == ("Total", "6", "$2.56 + unknown")


def test_a_session_links_to_its_cycle_and_to_the_other_sessions(operator_client):
    first, second, third = three_tier_chain()

    page = page_of(operator_client, second)

    assert f'<a href="{second.cycle.get_absolute_url()}">Cycle {second.cycle_id}</a>' in page
    for other in (first, third):
        assert f'<a href="{other.get_absolute_url()}">Session #{other.pk}' in page


def test_a_session_stopped_by_a_person_is_not_shown_as_an_error(operator_client):
    session = SessionFactory(
        status="interrupted", stop_cause="person", stop_requested="ada", error="Stopped: ada."
    )

    page = page_of(operator_client, session)

    assert "stopped by ada" in page
    assert "<strong>Error</strong>" not in page


def test_the_telemetry_is_shown_beside_the_cost_and_a_difference_is_marked(operator_client):
    counted = {"cost_usd": Decimal("0.5"), "telemetry_tokens": 1234}
    same = SessionFactory(**counted, telemetry_cost_usd=Decimal("0.5"))
    other = SessionFactory(**counted, telemetry_cost_usd=Decimal("0.3"), telemetry_differs=True)

    assert "claudeops doctor" not in page_of(operator_client, same)
    assert "telemetry of the CLI" in page_of(operator_client, same)
    assert "claudeops doctor" in (page := page_of(operator_client, other))
    assert "$0.20" in page
    assert "telemetry of the CLI" not in page_of(operator_client, SessionFactory())


def test_a_session_is_titled_by_its_sentence(operator_client):
    waits = {"session_id": "", "duration_ms": None, "cost_usd": None}
    for fields, sentence in (
        (
            {"tier": 2, "duration_ms": 1200, "cost_usd": "0.06"},
            "Tier 2 completed in 1.2 s for $0.06",
        ),
        ({"purpose": "retry", "status": "failed", "duration_ms": 1200}, "Tier 1 (retry) failed in"),
        ({"running": True}, "Tier 1 is at work"),
        ({"status": "queued", **waits}, "Tier 1 waits for a worker"),
        ({"status": "interrupted", **waits}, "Tier 1 was interrupted"),
    ):
        session = SessionFactory(**fields)

        page = page_of(operator_client, session)

        title = page[page.index("<h1>") :].partition("</h1>")[0]
        assert f"{session.cycle.subject}: {sentence}" in title, sentence
        assert f"Session #{session.pk}" in title
