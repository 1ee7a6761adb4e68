"""The cost summary above the list of sessions follows the filters, with few queries."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.urls import reverse

from escalation import admin
from escalation.admin import costs_by_tier
from sessions_app.models import Session
from tests.factories import SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db
LIST = "admin:sessions_app_session_changelist"


def test_each_tier_is_summed():
    three_tier_chain()
    SessionFactory(failed=True)

    found = costs_by_tier(Session.objects.all())

    assert [(row.tier, row.runs, row.cost_usd, row.without_figure) for row in found.tiers] == [
        (1, 2, Decimal("0.03"), 1),
        (2, 1, Decimal("0.47"), 0),
        (3, 1, Decimal("2.00"), 0),
    ]
    assert found.total == Decimal("2.50")


def test_the_summary_follows_the_filters(operator_client):
    three_tier_chain()

    page = operator_client.get(reverse(LIST), {"tier__exact": "2"})

    assert [row.tier for row in page.context["tier_costs"].tiers] == [2]
    assert "<b>Tier 2</b> $0.47" in page.content.decode()


def test_the_summary_follows_the_search(operator_client):
    three_tier_chain()
    wanted = SessionFactory(error="the certificate expired")

    page = operator_client.get(reverse(LIST), {"q": "certificate"})

    assert page.context["tier_costs"].runs == 1
    assert page.context["cl"].result_list[0] == wanted


def test_only_the_newest_sessions_are_summed(operator_client, monkeypatch):
    monkeypatch.setattr(admin, "MOST_ADDED", 2)
    three_tier_chain()

    page = operator_client.get(reverse(LIST))

    assert [row.tier for row in page.context["tier_costs"].tiers] == [2, 3]
    assert "the newest 2 of those that match" in page.content.decode()


def test_an_empty_list_has_no_summary(operator_client):
    assert "tier-summary" not in operator_client.get(reverse(LIST)).content.decode()
