"""The page of costs: by day, watch, tier and model, and what is unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine
from django.urls import reverse
from django.utils import timezone

from escalation.web.costs import load_costs
from tests.factories import (
    CycleFactory,
    IncidentFactory,
    SessionFactory,
    UserFactory,
    WatchFactory,
    three_tier_chain,
)
from tests.sessions_app.tool_events import store_commands

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
def url() -> str:
    return reverse("web:costs")


def days_ago(days: int) -> datetime:
    return timezone.now() - timedelta(days=days)


def test_an_anonymous_visitor_is_sent_to_the_login(client, url):
    assert client.get(url).headers["Location"].startswith(reverse("login"))


def test_a_post_request_is_refused(operator_client, url):
    assert operator_client.post(url).status_code == 405


def test_the_page_is_in_the_navigation(operator_client, url):
    page = operator_client.get(reverse("web:overview")).content.decode()

    assert f'<a href="{url}">' in page


def test_an_empty_page_explains_costs(operator_client, url):
    page = operator_client.get(url).content.decode()
    other = operator_client.get(url, {"view": "continuity"}).content.decode()

    assert "No run began in the last 30 days" in page
    assert "Nothing to compare yet" in other


def test_an_empty_page_of_drills_says_how_to_start_one(operator_client, url):
    page = operator_client.get(url, {"drills": "yes"}).content.decode()

    assert "No drill ran in the last 30 days" in page


@pytest.mark.parametrize(
    ("period", "total"), [("7", "1"), ("30", "11"), ("90", "111"), ("all", "1111")]
)
def test_a_period_has_its_number_of_days(period, total):
    for days, cost in ((6, "1"), (29, "10"), (89, "100"), (400, "1000")):
        SessionFactory(started_at=days_ago(days), cost_usd=Decimal(cost))

    assert load_costs(period, drills=False).total.cost_usd == Decimal(total)


@pytest.mark.parametrize("odd", ["", "0", "-7", "14", "x", "9" * 50])
def test_an_invalid_period_is_the_default_one(operator_client, url, odd):
    assert operator_client.get(url, {"period": odd}).context["costs"].period == "30"


def test_req5_drills_are_never_part_of_real_costs():
    SessionFactory(cost_usd=Decimal("0.03"))
    SessionFactory(drill=True, cost_usd=Decimal("5"))

    assert load_costs("30", drills=False).total.cost_usd == Decimal("0.03")
    assert load_costs("30", drills=True).total.cost_usd == Decimal("5")


def test_drills_are_marked_as_not_charged(operator_client, url):
    SessionFactory(drill=True)

    page = operator_client.get(url, {"drills": "yes"}).content.decode()

    assert '<span class="badge drill">drill</span>' in page
    assert "not charged" in page


def test_req5_costs_are_shown_by_tier():
    three_tier_chain()

    tiers = load_costs("7", drills=False).tiers

    assert [(row.label, row.amount.cost_usd, row.share) for row in tiers] == [
        ("Tier 1", Decimal("0.03"), Decimal("0.012")),
        ("Tier 2", Decimal("0.47"), Decimal("0.188")),
        ("Tier 3", Decimal("2.00"), Decimal("0.8")),
    ]


def test_costs_are_shown_by_watch_with_the_highest_first():
    cheap, dear = WatchFactory(name="cheap"), WatchFactory(name="dear")
    SessionFactory(cycle=CycleFactory(watch=cheap), cost_usd=Decimal("0.1"))
    SessionFactory(cycle=CycleFactory(watch=dear), cost_usd=Decimal("0.5"))
    removed = CycleFactory(watch=None, watch_name="lab")
    SessionFactory(cycle=removed, cost_usd=Decimal("0.2"))

    labels = [row.label for row in load_costs("7", drills=False).watches]

    assert labels == ["dear", "lab (removed)", "cheap"]


def test_costs_are_shown_by_day_including_days_without_cost():
    with time_machine.travel(NOON, tick=False):
        SessionFactory(started_at=days_ago(0), cost_usd=Decimal("0.4"))
        SessionFactory(started_at=days_ago(2), cost_usd=Decimal("0.1"))

        days = load_costs("7", drills=False).days

    assert [row.label for row in days][-3:] == ["2026-03-13", "2026-03-14", "2026-03-15"]
    assert [row.share for row in days][-3:] == [Decimal("0.25"), 0, 1]


def test_all_time_is_shown_by_month():
    with time_machine.travel(NOON, tick=False):
        SessionFactory(started_at=days_ago(60), cost_usd=Decimal("0.1"))
        SessionFactory(started_at=days_ago(0), cost_usd=Decimal("0.1"))

        days = load_costs("all", drills=False).days

    assert [row.label for row in days] == ["2026-01", "2026-02", "2026-03"]


def test_req5_unknown_and_estimated_costs_are_shown_apart_and_not_added(operator_client, url):
    SessionFactory(cost_usd=Decimal("0.03"))
    SessionFactory(failed=True)
    SessionFactory(failed=True, estimated_cost_usd=Decimal("0.012"))
    SessionFactory(running=True)

    response = operator_client.get(url)

    total = response.context["costs"].total
    assert (total.cost_usd, total.runs) == (Decimal("0.03"), 4)
    assert (total.estimated, total.estimated_usd, total.unknown) == (1, Decimal("0.012"), 1)
    assert "+ ≈ $0.01 (estimate)" in response.content.decode()
    assert "+ 1 unknown" in response.content.decode()


def test_a_session_that_never_started_is_not_counted():
    SessionFactory(status="cancelled", started_at=None, cost_usd=None)

    assert load_costs("all", drills=False).total.runs == 0


def test_it_compares_resume_with_handoff(operator_client, url):
    first = SessionFactory(escalated=True, context_tokens=85_000)
    second = SessionFactory(tier=2, parent_session=first, continued_by="resume")
    store_commands(first, "df -h")
    store_commands(second, "df -h", "reboot")

    page = operator_client.get(url, {"view": "continuity"}).content.decode()

    assert "85.0k tokens" in page
    assert "1 of 2" in page
    assert "≈ $0.02 (estimate)" in page


def test_it_escapes_hostile_names(operator_client, url):
    SessionFactory(cycle=CycleFactory(watch=WatchFactory(name="<script>alert(1)</script>")))

    assert "<script>alert" not in operator_client.get(url).content.decode()


def test_the_chart_of_days_has_a_labelled_axis(operator_client, url):
    with time_machine.travel(NOON, tick=False):
        three_tier_chain()
        operator_client.force_login(UserFactory(is_superuser=True))

        page = operator_client.get(url, {"period": "7"}).content.decode()

    assert '<text x="100%" y="0.000%">$2.50</text>' in page
    assert ">Mar 15</text>" in page
    assert 'aria-label="7 columns from 2026-03-09 to 2026-03-15; the highest is' in page


def test_costs_are_shown_by_model():
    three_tier_chain()

    models = load_costs("7", drills=False).models

    assert [(row.label, row.amount.cost_usd) for row in models] == [
        ("opus", Decimal("2.00")),
        ("sonnet", Decimal("0.47")),
        ("haiku", Decimal("0.03")),
    ]


def test_the_most_expensive_chains_are_linked(operator_client, url):
    last = three_tier_chain()[2]

    page = operator_client.get(url).content.decode()

    assert f'<a href="{last.cycle.get_absolute_url()}">#{last.cycle.pk} ' in page
    assert "$2.50" in page


def test_the_cost_of_a_fixed_incident_is_shown(operator_client, url):
    session = SessionFactory(cost_usd=Decimal("0.40"))
    fixed = IncidentFactory(state="resolved", resolved_as="agent", resolved_at=timezone.now())
    fixed.cycles.add(session.cycle)

    page = operator_client.get(url).content.decode()

    assert "$0.40 on average" in page
    assert "1 of 1 resolved were fixed" in page


def test_the_period_is_compared_with_the_days_before_and_tokens_are_told_apart():
    now = timezone.now()
    SessionFactory(cost_usd=Decimal(2), started_at=now - timedelta(days=9))
    SessionFactory(
        cost_usd=Decimal(3),
        **{"input_tokens": 100, "output_tokens": 50},
        **{"cache_read_tokens": 900, "cache_creation_tokens": 0},
    )

    found = load_costs("7", drills=False)

    assert (found.total.cost_usd, found.before_usd, found.change) == tuple(
        map(Decimal, ("3", "2", "0.5"))
    )
    assert (found.total.read_tokens, found.total.output_tokens) == (1000, 50)
    assert found.total.saved_by_cache == Decimal("0.81")
    assert load_costs("all", drills=False).before_usd is None
