"""Budgets over the record: what counts, what is refused, and who is told."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from escalation import tasks
from escalation.errors import OperationRefused
from escalation.next_step import by_person, cycles
from escalation.next_step.cycles import leave_to_caller
from escalation.policy.budgets import note_standing, refusal_for
from escalation.policy.holding import held_back
from sessions_app.models import BudgetNotice, Cycle, Happening, Session
from sessions_app.models.policy import Policy
from sessions_app.reading.budgets import Scope, Spent
from sessions_app.reading.spending import budgets_of_cycle, budgets_of_watch, load_budgets
from tests.escalation.rows import ESCALATE, HEALTHY
from tests.escalation.runs import child_of, run
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
FREE = Policy(max_tier=3, dry_run=False)


@pytest.fixture
def limits(settings):
    settings.CLAUDEOPS_BUDGET_CHAIN = Decimal(4)
    settings.CLAUDEOPS_BUDGET_WATCH_DAY = Decimal(6)
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(10)
    settings.CLAUDEOPS_BUDGET_MONTH = Decimal(100)
    return settings


def spent_by_scope(cycle: Cycle, **options: Any) -> dict[str, Decimal]:
    return {budget.scope: budget.spent.total for budget in budgets_of_cycle(cycle, **options)}


def test_without_limits_nothing_is_counted_and_nothing_refused():
    cycle = SessionFactory(cost_usd=Decimal(1000)).cycle

    assert budgets_of_cycle(cycle) == ()
    assert load_budgets().limited == ()


def test_each_budget_counts_its_own_runs(limits):
    mine = SessionFactory(cost_usd=Decimal(1))
    SessionFactory(cycle=mine.cycle, tier=2, cost_usd=Decimal(2))
    SessionFactory(cycle=CycleFactory(watch=mine.cycle.watch), cost_usd=Decimal("0.5"))
    SessionFactory(cost_usd=Decimal("0.25"))
    SessionFactory(drill=True, cost_usd=Decimal(50))

    assert spent_by_scope(mine.cycle) == {
        Scope.CHAIN: 3,
        Scope.WATCH_DAY: Decimal("3.5"),
        Scope.DAY: Decimal("3.75"),
        Scope.MONTH: Decimal("3.75"),
    }


def test_estimates_and_runs_under_way_count_and_are_said_to_be_estimates(limits):
    cycle = SessionFactory(cost_usd=Decimal(1)).cycle
    SessionFactory(cost_usd=None, estimated_cost_usd=Decimal("0.5"), spent_so_far_usd=Decimal(9))
    SessionFactory(running=True, spent_so_far_usd=Decimal("0.25"))
    SessionFactory(cost_usd=None)

    (day,) = [budget for budget in budgets_of_cycle(cycle) if budget.scope == Scope.DAY]

    assert (day.spent.total, day.spent.guessed) == (Decimal("1.75"), Decimal("0.75"))


def test_a_run_that_asks_for_itself_is_left_out(limits):
    mine = SessionFactory(running=True, spent_so_far_usd=Decimal(1))

    assert set(spent_by_scope(mine.cycle, without=mine).values()) == {Decimal(0)}


def test_the_limit_of_a_watch_counts_before_that_of_all_watches(limits):
    watch = WatchFactory(budget_day_usd=Decimal("1.5"))

    found = {budget.scope: budget.limit for budget in budgets_of_watch(watch)}

    assert found[Scope.WATCH_DAY] == Decimal("1.5")


def test_a_drill_has_no_budget_but_its_own(limits):
    cycle = CycleFactory(drilled=True, budget_usd=Decimal("0.03"))
    SessionFactory(cycle=cycle, cost_usd=Decimal("0.02"))

    assert spent_by_scope(CycleFactory(drilled=True)) == {}
    assert spent_by_scope(cycle) == {Scope.CHAIN: Decimal("0.02")}


def test_yesterday_is_over_and_the_future_counts(limits):
    """A clock that is set back leaves runs in the future: they must not be forgotten."""
    cycle = CycleFactory()
    at = timezone.now()
    for moment in (at - timedelta(days=2), at + timedelta(days=3), at + timedelta(days=400)):
        SessionFactory(started_at=moment, cost_usd=Decimal(1))

    assert spent_by_scope(cycle)[Scope.DAY] == 2


def test_over_a_budget_no_cycle_begins_and_nothing_is_continued(settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(1)
    ended = SessionFactory(failed=True, cost_usd=Decimal(1))

    with pytest.raises(
        OperationRefused, match="Raise CLAUDEOPS_BUDGET_DAY, or wait until tomorrow"
    ):
        cycles.start(WatchFactory(), trigger=Cycle.Trigger.MANUAL, enqueue=leave_to_caller)
    with pytest.raises(OperationRefused, match="Nothing was started"):
        by_person.follow_up(ended, "Why?", enqueue=leave_to_caller)

    assert not Session.objects.filter(status="queued").exists()


def test_a_round_that_is_skipped_says_so_and_people_are_told_once(settings, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(0)
    watch = WatchFactory(name="shop")

    said = [tasks.start_scheduled_cycle(watch.pk) for _ in range(2)]

    assert said[0].startswith("Watch shop was skipped: $0.00 of the $0.00 for today is spent.")
    assert said[1] == said[0]
    assert Happening.objects.get().kind == Happening.Kind.BUDGET
    assert not Cycle.objects.exists()


def test_people_are_told_at_80_and_at_100_percent_once_a_period(limits):
    watch = WatchFactory()
    cycle = CycleFactory(watch=watch)
    for cost in ("4.7", "0.1", "0.2", "1.0", "0.5"):
        SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=Decimal(cost))
        note_standing(budgets_of_cycle(cycle), watch)

    told = [(happening.watch, happening.severity) for happening in Happening.objects.all()]
    assert told == [(watch, 2), (watch, 3)]
    assert set(BudgetNotice.objects.values_list("budget", "percent")) == {
        (f"watch:{watch.pk}", 80),
        (f"watch:{watch.pk}", 100),
    }


def test_an_escalation_is_not_started_over_a_budget(limits):
    session = SessionFactory(running=True)

    held = held_back(session, ESCALATE, FREE, Spent(total=Decimal("4.01")))

    assert held is not None
    assert held.reason == "$4.01 of the $4.00 for this chain is spent"
    assert held_back(SessionFactory(), ESCALATE, FREE) is None


def test_a_chain_ends_with_a_person_when_its_budget_is_spent(fake_cli, session, settings):
    settings.CLAUDEOPS_BUDGET_CHAIN = Decimal("0.02")
    fake_cli.reports(ESCALATE, total_cost_usd=0.03)

    ended = run(session)

    assert not ended.children.exists()
    assert ended.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert ended.cycle.outcome_reason.endswith("$0.03 of the $0.02 for this chain is spent.")


def test_a_tier_that_waits_does_not_start_once_the_budget_is_spent(fake_cli, session, settings):
    fake_cli.reports(ESCALATE)
    waiting = child_of(run(session))
    settings.CLAUDEOPS_BUDGET_MONTH = Decimal(0)

    ended = run(waiting)

    assert (ended.status, len(fake_cli.calls)) == (Session.Status.FAILED, 1)
    assert ended.error.startswith("The budget is spent: ")
    assert ended.cycle.outcome == Cycle.Outcome.NEEDS_PERSON


def test_the_cli_is_given_what_is_left(fake_cli, session, settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(1)
    SessionFactory(cost_usd=Decimal("0.75"))
    fake_cli.reports(HEALTHY)

    run(session)

    assert Decimal(fake_cli.calls[0].flag("--max-budget-usd")) == Decimal("0.25")


def test_all_that_is_limited_is_shown_with_a_forecast(limits):
    watch = WatchFactory(name="shop", budget_day_usd=Decimal(2))
    SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=Decimal(2))

    found = load_budgets()

    assert [budget.label for budget in found.limited] == [
        "Today, all watches",
        "This month, all watches",
        "Today, shop",
    ]
    assert [budget.label for budget in found.spent] == ["Today, shop"]
    assert found.forecast.spent == 2


def test_where_something_is_left_a_round_begins(limits):
    assert refusal_for(WatchFactory()) == ""
    assert not Happening.objects.exists()
