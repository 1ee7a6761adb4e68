"""The list of cycles: filters, search and pages."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from escalation.web import cycle_list
from sessions_app.models import Cycle, Session
from tests.factories import (
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    SessionFactory,
    three_tier_chain,
)

pytestmark = pytest.mark.django_db
URL = "/cycles/"


def shown(client: Client, **query: Any) -> list[Cycle]:
    response = client.get(URL, query)
    assert response.status_code == 200
    return [row.cycle for row in response.context["list"].rows]


def ended(outcome: str = "healthy", **facts: object) -> Cycle:
    cycle: Cycle = SessionFactory(cycle=CycleFactory(outcome=outcome, **facts)).cycle
    return cycle


def test_a_row_has_outcome_reason_chain_cost_and_duration(operator_client):
    cycle = three_tier_chain()[0].cycle

    page = operator_client.get(URL).content.decode()

    assert f"#{cycle.pk} {cycle.subject}" in page
    assert "All services answer." in page
    assert "3 runs" in page
    assert "$2.50" in page
    assert "8 min 57 s" in page
    assert page.count("Session #") == 3


def test_filters_combine(operator_client):
    plain = ended()
    fixed = three_tier_chain(cycle=CycleFactory(outcome="fixed", trigger="manual"))[0].cycle
    running = SessionFactory(running=True).cycle

    assert shown(operator_client) == [running, fixed, plain]
    assert shown(operator_client, outcome="fixed") == [fixed]
    assert shown(operator_client, outcome="active") == [running]
    assert shown(operator_client, trigger="manual") == [fixed]
    assert shown(operator_client, watch=plain.watch_id) == [plain]
    assert shown(operator_client, tier=3) == [fixed]
    assert shown(operator_client, model="opus") == [fixed]
    assert shown(operator_client, cost="1") == [fixed]
    assert shown(operator_client, cost="0.03") == [fixed, plain]
    assert shown(operator_client, tier=3, watch=plain.watch_id) == []
    assert shown(operator_client, tier=3, model="haiku") == []
    assert shown(operator_client, tier=3, model="opus", outcome="fixed", cost="2.5") == [fixed]


def test_cycles_are_filtered_by_handoff(operator_client):
    found = three_tier_chain()[2]
    ended()
    Session.objects.filter(pk=found.pk).update(continued_by="handoff")

    assert shown(operator_client, continued_by="handoff") == [found.cycle]


def test_cycles_are_filtered_by_a_service_with_an_incident_or_a_change(operator_client):
    ended()
    unwell, changed = ended(), ended()
    IncidentFactory(cause="web").cycles.add(unwell)
    ChangeFactory(service="web", session=changed.sessions.get())

    assert shown(operator_client, service="Web") == [changed, unwell]


def test_cycles_are_filtered_by_day(operator_client):
    now = timezone.now()
    old, new = ended(created_at=now - timedelta(days=3)), ended(created_at=now)
    yesterday = timezone.localdate(now - timedelta(days=1)).isoformat()

    assert shown(operator_client, since=yesterday) == [new]
    assert shown(operator_client, until=yesterday) == [old]
    assert shown(operator_client, until=yesterday, tier=1) == [old]
    assert shown(operator_client, since=yesterday, tier=1) == [new]


@pytest.mark.parametrize(
    "query",
    [
        {"tier": "x", "cost": "much", "since": "soon", "watch": "-", "outcome": "?"},
        {"cost": "-1", "before": "x", "until": "0000-00-00"},
        {"model": ""},
    ],
)
def test_invalid_filters_are_ignored(operator_client, query):
    cycle = ended()

    assert shown(operator_client, **query) == [cycle]


def test_an_unknown_model_stays_selected_and_finds_nothing(operator_client):
    ended()

    response = operator_client.get(URL, {"model": "<b>gpt"})

    assert response.context["list"].rows == ()
    assert '<option value="&lt;b&gt;gpt" selected>' in response.content.decode()


def test_a_search_shows_what_matched(operator_client):
    found = ended(outcome_reason="The <disk> is full.")
    ended()

    page = operator_client.get(URL, {"q": "<DISK>"})

    assert [row.cycle for row in page.context["list"].rows] == [found]
    assert "The <mark>&lt;disk&gt;</mark> is full." in page.content.decode()


def test_a_search_finds_the_text_and_the_number_of_a_session(operator_client):
    failed = SessionFactory(failed=True, error="certificate expired")
    ended()

    assert shown(operator_client, q="certificate") == [failed.cycle]
    assert shown(operator_client, q=f"#{failed.pk}") == [failed.cycle]
    assert shown(operator_client, q="certificate", tier=3) == []


def test_a_search_combines_with_every_filter(operator_client):
    chain = three_tier_chain(cycle=CycleFactory(outcome="fixed", outcome_reason="disk full"))
    ended(outcome_reason="disk full")
    query = {"tier": 2, "outcome": "fixed", "cost": "1", "since": "2020-01-01"}

    assert shown(operator_client, q="disk", **query) == [chain[0].cycle]


def test_a_search_text_that_is_too_short_is_reported(operator_client):
    ended()

    page = operator_client.get(URL, {"q": "ab"})

    assert "To search takes 3 letters" in page.content.decode()


@pytest.mark.parametrize("query", ["", "&outcome=healthy", "&tier=1", "&q=healthy"])
def test_every_cycle_is_on_exactly_one_page(operator_client, monkeypatch, query):
    monkeypatch.setattr(cycle_list, "PER_PAGE", 2)
    made = [ended(outcome_reason="All healthy.") for _ in range(5)]
    for cycle in made[:3]:
        first = cycle.sessions.get()
        SessionFactory(parent_session=first)
    seen: list[Cycle] = []
    before = ""
    for _ in range(5):
        listed = operator_client.get(f"{URL}?{before}{query}").context["list"]
        seen += [row.cycle for row in listed.rows]
        if listed.page.older is None:
            break
        before = f"before={listed.page.older}"

    assert sorted(cycle.pk for cycle in seen) == [cycle.pk for cycle in made]


def test_a_rare_match_is_found_page_by_page(operator_client, monkeypatch):
    monkeypatch.setattr(cycle_list, "LOOKED_AT", 2)
    rare = three_tier_chain()[0].cycle
    for _ in range(4):
        ended()

    page = operator_client.get(URL, {"tier": 3})
    older = page.context["list"].page.older

    assert "Looked down to" in page.content.decode()
    assert shown(operator_client, tier=3, before=older) == [rare]


@pytest.mark.parametrize(
    "query", ["model=none", "tier=3&before=2", "service=web", "cost=5", "before=3", "after=1"]
)
def test_queries_have_one_bound_on_each_side(operator_client, query):
    """SQLite takes the first of two bounds, and goes through all rows between them."""
    for _ in range(3):
        ended()

    with CaptureQueriesContext(connection) as asked:
        operator_client.get(f"{URL}?{query}")

    of_cycles = [one["sql"] for one in asked if 'FROM "sessions_app_cycle"' in one["sql"]]
    lists = [sql for sql in of_cycles if "LIMIT" in sql and "OUTER JOIN" in sql]
    assert lists
    for sql in lists:
        assert len(re.findall(r'"sessions_app_cycle"\."id" >=? \d', sql)) <= 1
        assert len(re.findall(r'"sessions_app_cycle"\."id" <=? \d', sql)) <= 1


def test_no_filter_and_no_search_takes_more_than_twelve_queries(operator_client):
    chain = three_tier_chain(cycle=CycleFactory(outcome_reason="disk full"))
    everything = {
        **{"tier": 2, "outcome": "healthy", "trigger": "schedule", "cost": "0.1"},
        **{"since": "2020-01-01", "until": "2999-01-01", "service": "web", "model": "sonnet"},
        "watch": chain[0].watch_id,
    }

    for query in ({}, everything, {"q": "disk"}, {"q": "disk", "before": 10**9, "tier": 1}):
        with CaptureQueriesContext(connection) as queries:
            operator_client.get(URL, query)
        assert len(queries) <= 12, query


def test_an_empty_list_explains_cycles(operator_client):
    assert "No cycle has run yet." in operator_client.get(URL).content.decode()
    assert "No cycle matches" in operator_client.get(URL, {"tier": 3}).content.decode()


def test_an_htmx_request_gets_only_the_list(operator_client):
    page = operator_client.get(URL, headers={"HX-Request": "true"}).content.decode()

    assert page.strip().startswith('<div id="cycle-list">')


def test_an_unknown_cost_is_not_shown_as_zero(operator_client):
    SessionFactory(failed=True, cost_usd=None)
    known = ended()

    assert shown(operator_client, cost=str(Decimal("0.01"))) == [known]
