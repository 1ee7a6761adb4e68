"""Budgets reserve the limits of running sessions, which have spent nothing yet."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escalation.queue import start_waiting
from escalation.run.runner import admit, objection
from escalation.supervisor.budgets import UnderWay, promised_away, usual_cost
from sessions_app.costs.budgets import Budget, Scope, Spent
from sessions_app.models import Cycle, Session
from tests.factories import CycleFactory, SessionFactory, WatchFactory
from tests.tables import each_row

MONEY = st.decimals(0, 10, places=2)


def day(spent: str, limit: str, scope: Scope = Scope.DAY) -> Budget:
    return Budget(scope=scope, limit=Decimal(limit), spent=Spent(total=Decimal(spent)), name="x")


def under_way(still_to_come: str, *, cycle: int = 1, watch: int = 1) -> UnderWay:
    return UnderWay(cycle=cycle, watch=watch, still_to_come=Decimal(still_to_come))


OURS = Cycle(pk=1, watch_id=1)


@each_row(
    ("budget", "running", "waits"),
    [
        (day("0.90", "1.00"), [], False),
        (day("0.90", "1.00"), [under_way("0.10")], True),
        (day("0.90", "1.00"), [under_way("0.05"), under_way("0.05")], True),
        (day("0.90", "1.00"), [under_way("0.09")], False),
        (day("1.00", "1.00"), [under_way("5")], False),
        (day("0.90", "1.00"), [under_way("0.10", cycle=2, watch=2)], True),
        (day("0.90", "1.00", Scope.WATCH_DAY), [under_way("5", cycle=2, watch=2)], False),
        (day("0.90", "1.00", Scope.WATCH_DAY), [under_way("5", cycle=2)], True),
        (day("0.90", "1.00", Scope.CHAIN), [under_way("5", cycle=2)], False),
        (day("0.90", "1.00", Scope.CHAIN), [under_way("5")], True),
    ],
)
def test_a_session_waits_if_running_ones_may_need_the_rest_of_a_budget(budget, running, waits):
    assert bool(promised_away([budget], OURS, running)) is waits


@given(MONEY, MONEY, st.lists(MONEY, max_size=5))
def test_a_session_waits_only_while_another_one_runs(spent, limit, running):
    """Or nobody would wake it."""
    runs = [under_way(str(cost)) for cost in running]
    if promised_away([day(str(spent), str(limit))], OURS, runs):
        assert sum(running) > 0


def ended(cost: str, tier: int = 1) -> Session:
    session: Session = SessionFactory(tier=tier, cost_usd=Decimal(cost))
    return session


def queued() -> Session:
    session: Session = SessionFactory(
        cycle=CycleFactory(watch=WatchFactory()),
        status=Session.Status.QUEUED,
        started_at=None,
        finished_at=None,
        cost_usd=None,
    )
    return session


@pytest.mark.django_db
def test_the_expected_cost_is_the_mean_of_the_latest_sessions():
    ended("0.10")
    ended("0.30")
    ended("9.00", tier=2)
    SessionFactory(tier=1, drill=True, cost_usd=Decimal(9))

    assert usual_cost(1) == Decimal("0.20")
    assert usual_cost(3) == Decimal(15)


@pytest.mark.django_db
def test_the_second_session_waits_until_the_cost_of_the_first_is_known(settings):
    ended("0.10")
    settings.CLAUDEOPS_BUDGET_DAY = Decimal("0.20")
    first, second = queued(), queued()

    assert admit(first) == ""
    assert "running sessions may need the rest" in admit(second)

    first.finish(Session.Status.COMPLETED, "done", cost_usd=Decimal("0.05"))
    assert start_waiting() == 1
    assert admit(second) == ""


@pytest.mark.django_db
def test_spent_amounts_of_a_running_session_are_not_counted_twice(settings):
    ended("0.10")
    settings.CLAUDEOPS_BUDGET_DAY = Decimal("0.25")
    first, second = queued(), queued()
    admit(first)
    Session.objects.filter(pk=first.pk).update(spent_so_far_usd=Decimal("0.08"))

    assert objection(second) == ""


@pytest.mark.django_db
def test_the_expected_cost_is_at_most_the_limit_of_the_session(settings):
    ended("0.10")
    settings.CLAUDEOPS_BUDGET_DAY = Decimal("0.15")
    first, second = queued(), queued()
    first.max_budget_usd = Decimal("0.04")
    first.save()
    admit(first)

    assert objection(second) == ""


@pytest.mark.django_db
def test_a_drill_does_not_wait_for_a_budget(settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal("0.20")
    ended("0.19")
    admit(queued())
    drill = SessionFactory(drill=True, status=Session.Status.QUEUED, started_at=None)

    assert objection(drill) == ""
