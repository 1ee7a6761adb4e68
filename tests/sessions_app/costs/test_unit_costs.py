"""The cost of one cycle, and the most expensive chains."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from sessions_app.costs import spending as module
from sessions_app.costs.spending import unit_costs
from tests.factories import CycleFactory, SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db


def test_a_cycle_costs_what_its_chain_costs():
    three_tier_chain()
    SessionFactory(cost_usd=Decimal("0.10"))

    found = unit_costs(None, drills=False)

    assert (found.cycles, found.average_usd, found.median_usd) == (
        2,
        Decimal("1.30"),
        Decimal("1.30"),
    )


def test_the_most_expensive_chain_comes_first():
    SessionFactory(cost_usd=Decimal("0.10"))
    dear = three_tier_chain()[0].cycle

    first = unit_costs(None, drills=False).dearest[0]

    assert (first.cycle, first.cost_usd, first.runs) == (dear, Decimal("2.50"), 3)
    assert (first.highest_tier, first.cycle.subject) == (3, dear.subject)


def test_cycles_without_a_cost_are_counted_and_not_averaged():
    SessionFactory(failed=True)

    found = unit_costs(None, drills=False)

    assert (found.cycles, found.average_usd, found.dearest) == (0, None, ())


def test_drills_are_counted_apart():
    SessionFactory(drill=True, cost_usd=Decimal("5"))

    assert unit_costs(None, drills=False).cycles == 0
    assert unit_costs(None, drills=True).dearest[0].cycle.drill == "disk-full"


def test_only_cycles_of_the_period_count():
    long_ago = timezone.now() - timedelta(days=40)
    SessionFactory(cycle=CycleFactory(created_at=long_ago))

    assert unit_costs(timezone.localdate() - timedelta(days=6), drills=False).cycles == 0


def test_only_the_latest_cycles_are_read(monkeypatch):
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    for _ in range(3):
        SessionFactory()

    found = unit_costs(None, drills=False)

    assert (found.cycles, found.is_cut) == (2, True)
