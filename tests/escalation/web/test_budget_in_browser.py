"""A spent budget, in a real browser."""

from __future__ import annotations

from decimal import Decimal

from django.urls import reverse
from playwright.sync_api import expect

from sessions_app.models import Cycle
from tests.factories import CycleFactory, SessionFactory, WatchFactory


def test_a_spent_budget_is_shown_and_refuses_a_manual_run(visit):
    watch = WatchFactory(name="shop", budget_day_usd=Decimal(1))
    SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=Decimal("1.25"))
    page = visit.go(reverse("web:overview"))
    expect(page.get_by_text("Today, shop: the budget is spent.")).to_be_visible()

    page.locator(f"#watch-more-{watch.pk} > summary").click()
    page.get_by_role("button", name="Run shop now").click()

    expect(page.get_by_text("Nothing was started: $1.25 of the $1.00")).to_be_visible()
    assert Cycle.objects.count() == 1
