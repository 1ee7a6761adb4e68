"""The overview: the inbox with its actions, running cycles, and the cards of watches."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from escalation.web.overview import RECENT_CYCLES, load_overview, overview_version
from sessions_app.models import PauseSwitch
from tests.factories import (
    ApprovalFactory,
    CycleFactory,
    IncidentFactory,
    SessionEventFactory,
    SessionFactory,
    UserFactory,
    WatchFactory,
    user_with,
)

pytestmark = pytest.mark.django_db

URL = "/"
HTMX = {"HX-Request": "true"}
HOSTILE = "<script>alert(1)</script>\u202e\r\nevent: x"


def page_of(client: Client, **options: Any) -> str:
    return client.get(URL, **options).content.decode()


def client_with(role: str) -> Client:
    client = Client()
    client.force_login(user_with(role))
    return client


def a_call(session, command: str):
    call = {"type": "tool_use", "name": "Bash", "input": {"command": command}}
    payload = {"type": "assistant", "message": {"content": [call]}}
    return SessionEventFactory(session=session, payload=payload)


def test_incidents_and_approvals_are_one_list_with_the_worst_first(operator_client):
    IncidentFactory(title="a warning", severity=2)
    IncidentFactory(title="a crisis", severity=3)
    IncidentFactory(title="taken already", severity=3, state="acknowledged", owner=UserFactory())
    ApprovalFactory(session__tier=2)

    page = page_of(operator_client)

    order = ("a crisis", "may Tier 2 start?", "a warning", "taken already")
    places = [page.index(text) for text in order]
    assert places == sorted(places)


def test_an_incident_can_be_handled_on_the_overview(operator_client):
    incident = IncidentFactory()

    page = page_of(operator_client)

    for name in ("acknowledge_incident", "snooze_incident", "resolve_incident"):
        assert reverse(f"web:{name}", args=[incident.pk]) in page


def test_a_viewer_sees_no_buttons():
    incident, approval = IncidentFactory(), ApprovalFactory(of_a_command=True)

    page = page_of(client_with("viewer"))

    assert incident.title in page
    assert "may a command of Tier 2 run?" in page
    assert "/incidents/" in page
    assert reverse("web:acknowledge_incident", args=[incident.pk]) not in page
    assert approval.command not in page
    assert "Approve or reject" not in page
    assert 'id="drills"' not in page


def test_incidents_of_drills_are_shown_last_and_not_counted(operator_client):
    IncidentFactory(title="rehearsed", severity=3, watch=None, drill="x", scope="drill:x")
    IncidentFactory(title="a notice", severity=1)

    page = page_of(operator_client)

    assert page.index("a notice") < page.index("rehearsed")
    assert "<title>(1) Claude Ops</title>" in page


def test_the_title_counts_what_needs_a_person_also_after_a_refresh(operator_client):
    IncidentFactory()
    ApprovalFactory()

    assert "<title>(2) Claude Ops</title>" in page_of(operator_client)
    fragment = page_of(operator_client, headers=HTMX)
    assert "<title>(2) Claude Ops</title>" in fragment
    assert 'id="count-incidents"' in fragment
    assert 'data-announce="2 things need you."' in fragment


def test_an_empty_inbox_says_so(operator_client):
    page = page_of(operator_client)

    assert "The inbox is empty" in page
    assert "<title>Claude Ops</title>" in page


def test_a_running_cycle_shows_its_current_step_and_cost(operator_client):
    session = SessionFactory(running=True, tier=2, spent_so_far_usd=Decimal("0.12"))
    a_call(session, "probe web")

    page = page_of(operator_client)

    assert "now: <code>probe web</code>" in page
    assert "$0.12 so far" in page
    assert session.cycle.get_absolute_url() in page


def test_without_the_right_to_see_output_only_the_kind_of_step_is_shown():
    a_call(SessionFactory(running=True), "probe web")

    page = page_of(client_with("viewer"))

    assert "probe web" not in page
    assert "now: it uses the tool Bash" in page


def test_the_next_step_of_a_run_changes_the_version():
    session, before = SessionFactory(running=True), overview_version()

    a_call(session, "probe web")

    assert overview_version() != before


def test_page_and_poll_have_the_same_version():
    a_call(SessionFactory(running=True), "probe web")
    for _ in range(25):
        CycleFactory()
    ApprovalFactory()
    IncidentFactory().events.create(kind="opened")

    assert load_overview().version == overview_version()


def test_a_long_running_cycle_stays_above_newer_finished_ones():
    session = SessionFactory(running=True)
    for _ in range(25):
        CycleFactory()

    dashboard = load_overview()

    assert [row.cycle for row in dashboard.active] == [session.cycle]
    assert session.cycle not in [row.cycle for row in dashboard.cycles]
    assert len(dashboard.cycles) == RECENT_CYCLES


def test_a_pause_is_shown_beside_the_queue(operator_client):
    PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE, paused=True, reason="a storm")
    CycleFactory(running=True, state="queued")
    WatchFactory()

    page = page_of(operator_client)

    assert "The queue stands still until somebody lets it go on: a storm" in page
    assert "It waits: Claude Ops is paused." in page
    assert "all is paused" in page


def test_pausing_everything_changes_the_version():
    before = overview_version()

    PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE, paused=True, reason="a storm")

    assert overview_version() != before


def test_cards_are_sorted_by_state():
    paused = WatchFactory(name="a paused", enabled=False)
    healthy = CycleFactory(watch__name="b healthy").watch
    failed = CycleFactory(watch__name="c failed", outcome="could_not_run").watch
    warned = IncidentFactory(watch__name="d warned", severity=2).watch
    critical = IncidentFactory(watch__name="e critical", severity=3).watch

    found = [card.watch for card in load_overview().watches]

    assert found == [critical, warned, failed, healthy, paused]


def test_a_card_shows_history_bar_next_run_cost_and_autonomy(operator_client):
    watch = WatchFactory(name="shop")
    for outcome in ("healthy", "healthy", "fixed"):
        SessionFactory(cycle=CycleFactory(watch=watch, outcome=outcome), cost_usd=Decimal("0.03"))
    watch.schedule.next_run = timezone.now() + timedelta(minutes=30, seconds=20)
    watch.schedule.save()

    page = page_of(operator_client)

    assert "Last 3 cycles of shop, oldest first: 1 fixed, 2 healthy" in page
    assert page.count('class="mark mark-healthy" href') == 2
    assert "in 30 min" in page
    assert "$0.03" in page
    assert "everything" in page


def test_a_stop_by_a_person_shows_who_stopped_it(operator_client):
    stop = {"status": "interrupted", "stop_cause": "person", "stop_requested": "ada"}
    SessionFactory(cycle=CycleFactory(outcome="needs_person"), **stop)

    page = page_of(operator_client)

    assert page.count("stopped by ada") >= 3  # its card, its mark and its row
    assert "1 stopped" in page


def test_the_guide_is_offered_until_a_watch_has_run(operator_client):
    CycleFactory(drilled=True)
    assert reverse("web:start") in page_of(operator_client)

    CycleFactory()

    assert reverse("web:start") not in page_of(operator_client)


def test_the_cost_of_today_is_shown_beside_its_budget(operator_client, settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(2)
    SessionFactory(cost_usd=Decimal("0.50"))

    assert "$0.50 of $2.00" in page_of(operator_client)


def test_hostile_text_is_escaped(operator_client):
    watch = WatchFactory(name=HOSTILE[:90], workdir=HOSTILE)
    IncidentFactory(watch=watch, title=HOSTILE, detail=HOSTILE, remedy=HOSTILE, times_reopened=1)
    session = SessionFactory(running=True, cycle__watch=watch)
    a_call(session, HOSTILE + "x" * 1_000_000)
    ApprovalFactory(of_a_command=True, command=HOSTILE, why=HOSTILE)
    stop = {"status": "interrupted", "stop_cause": "person", "stop_requested": HOSTILE}
    SessionFactory(cycle=CycleFactory(outcome="needs_person", outcome_reason=HOSTILE), **stop)

    page = page_of(operator_client)

    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert len(page) < 200_000


def test_every_page_shows_waiting_counts_in_the_navigation(operator_client):
    IncidentFactory()
    ApprovalFactory()

    page = operator_client.get(reverse("web:sandbox")).content.decode()

    assert 'id="count-incidents" class="nav-count tone-warn">1<' in page
    assert 'id="count-approvals" class="nav-count tone-warn">1<' in page


def test_the_navigation_has_no_empty_link(operator_client):
    page = page_of(operator_client)

    assert 'href=""' not in page
    assert f'href="{reverse("web:overview")}" aria-current="page"' in page
