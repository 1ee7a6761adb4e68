"""Budgets on the overview and on the page of costs."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from sessions_app.costs.budgets import Scope
from sessions_app.costs.spending import limits_of, load_budgets
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db


def page_of(client, name: str, **parameters: str) -> str:
    page = client.get(reverse(f"web:{name}"), parameters).content.decode()
    return " ".join(str(page).split())


def test_without_limits_the_page_says_how_to_set_one(operator_client):
    page = page_of(operator_client, "costs")

    assert "Nothing is limited." in page
    assert "CLAUDEOPS_BUDGET_DAY" in page
    assert "Expected for this month:</b> $0.00" in page


def test_spent_amounts_are_shown_beside_their_limits(operator_client, settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(5)
    watch = WatchFactory(name="shop", budget_day_usd=Decimal("2.2"))
    SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=Decimal("1.75"))
    SessionFactory(
        cycle=CycleFactory(watch=watch), cost_usd=None, estimated_cost_usd=Decimal("0.25")
    )

    costs, dashboard = page_of(operator_client, "costs"), page_of(operator_client, "overview")

    assert 'Today, shop <span class="badge tone-warn">nearly spent</span>' in costs
    assert "≈ $0.25 estimated" in costs
    assert "$2.00 of $5.00, with estimates" in dashboard
    assert "the budget is spent" not in dashboard


def test_a_spent_budget_is_shown_on_the_overview(operator_client, settings):
    settings.CLAUDEOPS_BUDGET_MONTH = Decimal(0)

    page = page_of(operator_client, "overview")

    assert "This month, all watches: the budget is spent." in page
    assert "Raise CLAUDEOPS_BUDGET_MONTH" in page


def test_drills_have_no_budgets(operator_client):
    assert "Budgets" not in page_of(operator_client, "costs", drills="yes")


def test_the_budget_of_a_watch_is_changed_on_the_page_with_a_confirmation(admin_client):
    watch = WatchFactory(name="shop", budget_day_usd=Decimal(2))
    url, wanted = reverse("web:change_budget"), {"of": f"watch:{watch.pk}", "limit_usd": "3.50"}

    def budget_after(**given: object) -> Decimal | None:
        admin_client.post(url, given)
        watch.refresh_from_db()
        return watch.budget_day_usd

    assert "Change the budget" in page_of(admin_client, "costs")
    assert budget_after(**wanted) == 2
    assert budget_after(**{**wanted, "limit_usd": "-1"}, confirm="on") == 2
    assert budget_after(**wanted, confirm="on") == Decimal("3.5")
    assert LogEntry.objects.get().object_id == str(watch.pk)
    assert budget_after(of=f"watch:{watch.pk}", limit_usd="", confirm="on") is None


@pytest.mark.parametrize("name", ["day", "month"])
def test_a_budget_of_all_watches_replaces_the_setting_until_it_is_emptied(
    admin_client, settings, name
):
    setattr(settings, f"CLAUDEOPS_BUDGET_{name.upper()}", Decimal(9))
    SessionFactory(cost_usd=Decimal("1.25"))
    url, cycle = reverse("web:change_budget"), CycleFactory()

    def limit_after(dollars: str) -> Decimal | None:
        admin_client.post(url, {"of": name, "limit_usd": dollars, "confirm": "on"})
        shown = getattr(load_budgets(), name).limit
        assert limits_of(cycle)[Scope(name)] == shown
        return shown

    assert limit_after("1.00") == 1
    assert "the budget is spent" in page_of(admin_client, "overview")
    assert limit_after("") == 9
