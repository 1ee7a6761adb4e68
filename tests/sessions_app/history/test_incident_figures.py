"""The cost of incidents, and the time of a repair."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from sessions_app.history.incidents import cost_of, figures_since, remedies_that_failed
from sessions_app.models import Incident
from tests.factories import (
    CycleFactory,
    IncidentFactory,
    SessionFactory,
    three_tier_chain,
)

pytestmark = pytest.mark.django_db
LAST_MONTH = timezone.now() - timedelta(days=30)


def fixed(minutes: int, **facts) -> Incident:
    now = timezone.now()
    incident: Incident = IncidentFactory(
        **{
            "state": Incident.State.RESOLVED,
            "resolved_as": "agent",
            "first_seen_at": now - timedelta(minutes=minutes),
            "resolved_at": now,
            **facts,
        }
    )
    return incident


def test_the_cost_of_an_incident_is_that_of_its_cycles():
    incident = IncidentFactory()
    incident.cycles.add(three_tier_chain()[0].cycle)
    SessionFactory()

    cost = cost_of(incident)

    assert (cost.runs, cost.cost_usd, cost.without_figure) == (3, Decimal("2.50"), 0)


def test_sessions_without_a_cost_are_counted_and_not_guessed():
    incident = IncidentFactory()
    incident.cycles.add(SessionFactory(failed=True, estimated_cost_usd=Decimal(9)).cycle)

    cost = cost_of(incident)

    assert (cost.cost_usd, cost.without_figure) == (Decimal(0), 1)


def test_a_cycle_shared_by_two_incidents_counts_once():
    cycle = SessionFactory(cost_usd=Decimal(4)).cycle
    for incident in (fixed(10), fixed(20)):
        incident.cycles.add(cycle)

    figures = figures_since(LAST_MONTH)

    assert (figures.fixed, figures.cost_per_fix) == (2, Decimal(2))


def test_the_time_to_repair_is_the_median_of_fixed_incidents():
    for minutes in (10, 20, 600):
        fixed(minutes)
    fixed(1, resolved_as="person")
    fixed(1, drill="x", watch=None)

    figures = figures_since(LAST_MONTH)

    assert (figures.resolved, figures.fixed) == (4, 3)
    assert figures.time_to_repair is not None
    assert round(figures.time_to_repair.total_seconds()) == 20 * 60


def test_without_a_fix_there_is_no_figure():
    figures = figures_since(LAST_MONTH)

    assert (figures.fixed, figures.cost_per_fix, figures.time_to_repair) == (0, None, None)


def test_failed_remedies_are_found_by_cause():
    earlier = IncidentFactory(cause="web", scope="watch:1", state="resolved")
    earlier.events.create(kind="did_not_hold", text="restarted web")
    earlier.events.create(kind="fixed", text="redeployed web")
    other = IncidentFactory(cause="db", scope="watch:1")
    other.events.create(kind="did_not_hold", text="restarted db")
    again, cycle = IncidentFactory(cause="web", scope="watch:1"), CycleFactory()
    again.cycles.add(cycle)

    assert remedies_that_failed(cycle) == ["restarted web"]
