"""The list of sessions: newest first, filtered, page by page."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from escalation.web import sessions as session_pages
from tests.factories import CycleFactory, SessionFactory, WatchFactory, three_tier_chain

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def listed(operator_client):
    """The numbers of the sessions that the list shows for some filters."""

    def listed_numbers(**filters: object) -> list[int]:
        page = operator_client.get(reverse("web:sessions"), filters).content.decode()
        return [int(number) for number in re.findall(r'class="id"><a [^>]*>#(\d+)<', page)]

    return listed_numbers


def test_an_anonymous_visitor_is_sent_to_the_login(client):
    assert client.get(reverse("web:sessions")).status_code == 302


def test_it_lists_the_newest_first(listed):
    sessions = three_tier_chain()

    assert listed() == [session.pk for session in reversed(sessions)]


def test_an_empty_list_says_how_to_start(operator_client):
    page = operator_client.get(reverse("web:sessions")).content.decode()

    assert "No session has run yet" in page


def test_an_empty_result_links_to_all_sessions(operator_client):
    SessionFactory()

    page = operator_client.get(reverse("web:sessions"), {"tier": 3}).content.decode()

    assert "No session matches these filters" in page


def test_it_filters_by_tier(listed):
    _first, second, _third = three_tier_chain()

    assert listed(tier=2) == [second.pk]


def test_it_filters_by_status(listed):
    failed = SessionFactory(failed=True)
    SessionFactory()

    assert listed(status="failed") == [failed.pk]


def test_it_filters_by_watch(listed):
    watch = WatchFactory()
    session = SessionFactory(cycle=CycleFactory(watch=watch))
    SessionFactory()

    assert listed(watch=watch.pk) == [session.pk]


def test_it_filters_drills(listed):
    drill, real = SessionFactory(drill=True), SessionFactory()

    assert (listed(drill="yes"), listed(drill="no")) == ([drill.pk], [real.pk])


def test_it_filters_by_how_a_session_continued(listed):
    handoff, _fresh = SessionFactory(continued_by="handoff"), SessionFactory()

    assert listed(continued_by="handoff") == [handoff.pk]


def test_it_filters_by_purpose(listed):
    question, _tier = SessionFactory(purpose="follow_up"), SessionFactory()

    assert listed(purpose="follow_up") == [question.pk]


def test_it_shows_the_purpose_of_a_session_that_is_not_a_tier(operator_client):
    SessionFactory(purpose="follow_up")

    page = operator_client.get(reverse("web:sessions")).content.decode()

    assert ">follow-up</span>" in page


def test_an_estimated_cost_is_marked_as_one(operator_client):
    SessionFactory(failed=True, estimated_cost_usd="0.012")

    page = operator_client.get(reverse("web:sessions")).content.decode()

    assert "≈ $0.01 (estimate)" in page


def test_filters_combine(listed):
    SessionFactory(drill=True)
    wanted = SessionFactory(drill=True, failed=True)

    assert listed(drill="yes", status="failed") == [wanted.pk]


def test_it_finds_a_session_by_its_number(listed):
    session = SessionFactory(session_id="")
    SessionFactory(session_id="")

    assert listed(q=f"#{session.pk}") == [session.pk]


@pytest.mark.parametrize(
    "words", ["sess_abc", "broken pipe", "asks for room", "certificate", "homelab"]
)
def test_it_finds_a_session_by_its_text(listed, words):
    cycle = CycleFactory(watch=WatchFactory(name="homelab"), outcome_reason="certificate expired")
    session = SessionFactory(
        cycle=cycle,
        session_id="sess_abc123",
        error="Broken pipe",
        escalation_reason="Tier 1 asks for room.",
    )
    SessionFactory()

    assert listed(q=words) == [session.pk]


@pytest.mark.parametrize(
    "filters",
    [
        {"tier": "x"},
        {"status": "unheard"},
        {"watch": "99"},
        {"drill": "perhaps"},
        {"continued_by": "luck"},
        {"purpose": "none"},
        {"before": "x"},
        {"before": "-3"},
        {"after": "x"},
        {"after": "9" * 30},
    ],
)
def test_an_invalid_filter_is_ignored(listed, filters):
    session = SessionFactory()

    assert listed(**filters) == [session.pk]


def test_paging_keeps_the_filters(operator_client, listed, monkeypatch):
    monkeypatch.setattr(session_pages, "SESSIONS_PER_PAGE", 2)
    sessions = [SessionFactory() for _ in range(3)]

    page = operator_client.get(reverse("web:sessions"), {"tier": 1, "q": ""}).content.decode()

    assert f'href="/sessions/?tier=1&amp;before={sessions[1].pk}"' in page
    assert listed(tier=1, before=sessions[1].pk) == [sessions[0].pk]


def test_every_htmx_link_has_the_same_href(operator_client, monkeypatch):
    monkeypatch.setattr(session_pages, "SESSIONS_PER_PAGE", 1)
    SessionFactory(), SessionFactory()

    page = operator_client.get(reverse("web:sessions")).content.decode()

    for link in re.findall(r"<a [^>]*hx-get[^>]*>", page):
        assert re.findall(r'[ ]href="([^"]*)"', link) == re.findall(r'hx-get="([^"]*)"', link)


def test_an_htmx_request_gets_only_the_table(operator_client):
    page = operator_client.get(reverse("web:sessions"), headers=HTMX).content.decode()

    assert "<html" not in page
    assert 'id="session-table"' in page


def test_drills_are_marked(operator_client):
    SessionFactory(drill=True)

    page = operator_client.get(reverse("web:sessions"), {"drill": "yes"}).content.decode()

    assert '<span class="badge drill">drill</span>' in page


def test_it_escapes_hostile_text(operator_client):
    SessionFactory(model='"><script>', cycle=CycleFactory(watch=None, drill="<script>"))

    page = operator_client.get(reverse("web:sessions"), {"drill": "yes"}).content.decode()

    assert "&lt;script&gt;" in page
    assert "<script>" not in page
