"""The overview: running and finished cycles, and open tasks."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine
from django.urls import reverse
from django.utils import timezone

from escalation.web.overview import load_overview, overview_version
from sessions_app.models import Cycle
from tests.factories import (
    CycleFactory,
    IncidentFactory,
    SessionFactory,
    UserFactory,
    WatchFactory,
    three_tier_chain,
)

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def url() -> str:
    return reverse("web:overview")


def test_an_anonymous_visitor_is_sent_to_the_login(client, url):
    response = client.get(url)

    assert response.headers["Location"].startswith(reverse("login"))


def test_a_post_request_is_refused(operator_client, url):
    assert operator_client.post(url).status_code == 405


def test_an_empty_overview_says_what_to_do_next(operator_client, url):
    page = operator_client.get(url).content.decode()

    assert "Nothing is being watched yet" in page
    assert "No cycle has run yet" in page


def test_it_shows_a_watch_with_its_buttons(operator_client, url):
    watch = WatchFactory(name="homelab", workdir="/srv/homelab", dry_run=True)

    page = operator_client.get(url).content.decode()

    assert "homelab" in page
    assert "/srv/homelab" in page
    assert reverse("web:run_watch", args=[watch.pk]) in page
    assert reverse("web:pause_watch", args=[watch.pk]) in page


def test_a_watch_can_be_run_with_a_request_and_a_new_conversation(operator_client, url):
    watch = WatchFactory()

    page = operator_client.get(url).content.decode()

    form = f'form="run-form-{watch.pk}"'
    assert f'<form id="run-form-{watch.pk}"' in page
    assert f'name="prompt" {form}' in page
    assert f'name="fresh" value="on" {form}' in page


def test_a_follow_up_is_not_shown_as_a_step_of_the_chain(operator_client, url):
    session = SessionFactory()
    SessionFactory(parent_session=session, purpose="follow_up")

    page = operator_client.get(url).content.decode()

    assert "follow-up question" in page
    assert "→" not in page


def test_a_paused_watch_can_be_unpaused(operator_client, url):
    watch = WatchFactory(enabled=False)

    page = operator_client.get(url).content.decode()

    assert reverse("web:unpause_watch", args=[watch.pk]) in page
    assert reverse("web:pause_watch", args=[watch.pk]) not in page


def test_a_watch_shows_its_last_outcome_and_why(operator_client, url):
    cycle = CycleFactory(outcome="needs_person", outcome_reason="The certificate expires.")

    page = operator_client.get(url).content.decode()

    assert "needs a person" in page
    assert "The certificate expires." in page
    assert cycle.get_absolute_url() in page


def test_a_running_watch_cannot_be_run_again(operator_client, url):
    SessionFactory(running=True)

    assert "disabled" in operator_client.get(url).content.decode()


def test_it_shows_the_chain_of_a_cycle_with_its_total(operator_client, url):
    sessions = three_tier_chain()

    page = operator_client.get(url).content.decode()

    assert all(session.get_absolute_url() in page for session in sessions)
    assert "$2.50" in page


def test_it_shows_who_requested_a_cycle(operator_client, url):
    CycleFactory(trigger="manual", requested_by=UserFactory(username="ada"))

    assert "manual by ada" in operator_client.get(url).content.decode()


def test_it_escapes_hostile_text(operator_client, url):
    CycleFactory(outcome_reason=HOSTILE, watch=WatchFactory(name=HOSTILE, workdir=HOSTILE))

    assert HOSTILE not in operator_client.get(url).content.decode()


@pytest.mark.parametrize(("name", "shown"), [("shop", "shop (removed)"), ("", "a removed watch")])
def test_a_cycle_of_a_removed_watch_keeps_its_name(operator_client, url, name, shown):
    CycleFactory(watch=None, watch_name=name)

    assert shown in operator_client.get(url).content.decode()


def test_an_htmx_request_gets_only_the_fragment(operator_client, url):
    page = operator_client.get(url, headers=HTMX).content.decode()

    assert "<html" not in page
    assert 'id="overview-page"' in page


def test_a_boosted_request_gets_the_whole_page(operator_client, url):
    page = operator_client.get(url, headers={**HTMX, "HX-Boosted": "true"}).content.decode()

    assert "<html" in page


def test_an_unchanged_overview_answers_no_content(operator_client, url):
    SessionFactory()

    # The minute is part of the version.
    with time_machine.travel(timezone.now(), tick=False):
        response = operator_client.get(url, {"version": overview_version()}, headers=HTMX)

    assert (response.status_code, response.content) == (204, b"")


def test_a_changed_overview_answers_with_the_fragment(operator_client, url):
    session = SessionFactory(running=True)
    before = overview_version()
    session.finish("completed", cost_usd=Decimal("0.03"))

    response = operator_client.get(url, {"version": before}, headers=HTMX)

    assert response.status_code == 200


def test_pausing_a_watch_changes_the_version():
    watch = WatchFactory()
    before = overview_version()

    watch.enabled = False
    watch.save(update_fields=["enabled"])

    assert overview_version() != before


def test_caches_keep_page_and_fragment_apart(operator_client, url):
    assert "HX-Request" in operator_client.get(url).headers["Vary"]


def test_costs_are_counted_by_period():
    now = timezone.now()
    for days, cost in ((0, "1"), (3, "10"), (20, "100"), (40, "1000")):
        SessionFactory(started_at=now - timedelta(days=days), cost_usd=Decimal(cost))

    costs = load_overview().budgets.costs

    assert [costs.today, costs.week, costs.month] == [Decimal(n) for n in (1, 11, 111)]


def test_drills_never_count_as_cost():
    SessionFactory(drill=True, cost_usd=Decimal("5"))

    assert load_overview().budgets.costs.month == 0


def test_sessions_with_unknown_cost_are_counted():
    SessionFactory(failed=True)
    SessionFactory(running=True)

    assert load_overview().budgets.costs.without_figure == 1


def test_the_need_for_a_person_follows_from_incidents_and_not_from_the_last_cycle(
    operator_client, url
):
    CycleFactory(outcome=Cycle.Outcome.NEEDS_PERSON)
    assert load_overview().inbox.needs_person == 0

    incident = IncidentFactory(title="web is down")

    assert load_overview().inbox.needs_person == 1
    page = operator_client.get(url).content.decode()
    assert page.index("web is down") < page.index('id="watches-heading"')
    assert incident.get_absolute_url() in page


def test_a_change_of_an_incident_changes_the_version():
    incident, before = IncidentFactory(), overview_version()

    incident.events.create(kind="acknowledged")

    assert overview_version() != before


def test_running_and_waiting_cycles_are_shown_differently():
    SessionFactory(running=True)
    CycleFactory(running=True, state=Cycle.State.QUEUED)

    dashboard = load_overview()

    assert (dashboard.running, dashboard.waiting) == (1, 1)


def test_the_version_holds_while_an_old_cycle_waits_for_a_person():
    cycle = SessionFactory().cycle
    IncidentFactory(last_cycle=cycle)
    IncidentFactory(last_cycle=cycle)
    for _ in range(25):
        CycleFactory()

    with time_machine.travel(timezone.now(), tick=False):
        assert load_overview().version == overview_version()
