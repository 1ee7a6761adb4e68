"""Budgets over stored sessions: what counts, what is refused, and the notifications."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from escalation import tasks
from escalation.errors import RefusalCode, WhyNot
from escalation.supervisor import cycles, manual
from escalation.supervisor.budgets import held_back, notify_of_use, refusal_for
from sessions_app.costs.budgets import Scope, Spent
from sessions_app.costs.spending import budgets_of_cycle, budgets_of_watch, load_budgets
from sessions_app.models import BudgetNotice, Cycle, Incident, Notification, Session
from sessions_app.models.autonomy import Policy
from tests.escalation.refusals import refused
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


def causes() -> set[tuple[str, str]]:
    return set(Incident.objects.values_list("kind", "cause"))


def told() -> list[str]:
    return list(Notification.objects.order_by("pk").values_list("kind", flat=True))


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


def test_estimates_and_running_sessions_count_and_are_marked_as_estimates(limits):
    cycle = SessionFactory(cost_usd=Decimal(1)).cycle
    SessionFactory(cost_usd=None, estimated_cost_usd=Decimal("0.5"), spent_so_far_usd=Decimal(9))
    SessionFactory(running=True, spent_so_far_usd=Decimal("0.25"))
    SessionFactory(cost_usd=None)

    (day,) = [budget for budget in budgets_of_cycle(cycle) if budget.scope == Scope.DAY]

    assert (day.spent.total, day.spent.guessed) == (Decimal("1.75"), Decimal("0.75"))


def test_the_session_that_asks_is_not_counted(limits):
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


def test_sessions_of_yesterday_do_not_count_and_future_ones_do(limits):
    """A clock that is set back leaves runs in the future: they must not be forgotten."""
    cycle = CycleFactory()
    at = timezone.now()
    for moment in (at - timedelta(days=2), at + timedelta(days=3), at + timedelta(days=400)):
        SessionFactory(started_at=moment, cost_usd=Decimal(1))

    assert spent_by_scope(cycle)[Scope.DAY] == 2


def test_the_budgets_of_a_new_cycle_are_read_by_indexes(limits):
    """`cycle_id IS NULL`, on a column that is never null, makes SQLite read the whole table."""
    watch = WatchFactory()

    with CaptureQueriesContext(connection) as queries:
        budgets_of_watch(watch)

    assert [query["sql"] for query in queries if '"cycle_id" IS NULL' in query["sql"]] == []


LOS_ANGELES, AUCKLAND, KOLKATA = "America/Los_Angeles", "Pacific/Auckland", "Asia/Kolkata"


@pytest.mark.parametrize(
    ("before", "after", "started", "is_today", "is_this_month"),
    [
        (LOS_ANGELES, "UTC", "2026-11-18T00:30Z", True, True),
        ("UTC", LOS_ANGELES, "2026-11-17T09:00Z", True, True),
        ("UTC", LOS_ANGELES, "2026-11-17T07:00Z", False, True),
        ("UTC", LOS_ANGELES, "2026-11-18T04:00Z", True, True),
        (AUCKLAND, "UTC", "2026-11-17T23:00Z", False, True),
        ("UTC", AUCKLAND, "2026-11-17T11:30Z", True, True),
        ("UTC", KOLKATA, "2026-11-17T18:45Z", True, True),
        (AUCKLAND, KOLKATA, "2026-11-17T18:15Z", False, True),
        ("UTC", AUCKLAND, "2026-10-31T11:30Z", False, True),
        (AUCKLAND, "UTC", "2026-10-31T11:30Z", False, False),
    ],
)
def test_budgets_are_right_at_once_after_a_change_of_time_zone(
    limits, before, after, started, is_today, is_this_month
):
    """Without `rollups --rebuild`, which the sums by local day need."""
    with time_machine.travel("2026-11-18T05:00Z", tick=False):
        limits.TIME_ZONE = before
        cycle = SessionFactory(started_at=datetime.fromisoformat(started), cost_usd=2).cycle
        limits.TIME_ZONE = after

        found, shown = spent_by_scope(CycleFactory(watch=cycle.watch)), load_budgets()

    assert found[Scope.DAY] == found[Scope.WATCH_DAY] == (2 if is_today else 0)
    assert found[Scope.MONTH] == (2 if is_this_month else 0)
    shown_totals = {budget.scope: budget.spent.total for budget in shown.limited}
    assert shown_totals == {scope: found[scope] for scope in shown_totals}
    assert shown.costs.today == found[Scope.DAY]


def test_over_a_budget_no_cycle_starts_and_no_operation_is_allowed(settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(1)
    ended = SessionFactory(failed=True, cost_usd=Decimal(1))

    with refused(RefusalCode.BUDGET, match="CLAUDEOPS_BUDGET_DAY"):
        cycles.start(WatchFactory(), trigger=Cycle.Trigger.MANUAL)
    with refused(RefusalCode.BUDGET):
        manual.follow_up(ended, "Why?")

    assert not Session.objects.filter(status="queued").exists()


def test_a_skipped_cycle_sends_one_notification(settings, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(0)
    watch = WatchFactory(name="shop")

    said = [tasks.start_scheduled_cycle(watch.pk) for _ in range(2)]

    assert said[0].startswith("Watch shop was skipped: $0.00 of the $0.00 for today is spent.")
    assert said[1] == said[0]
    assert Notification.objects.get().kind == Notification.Kind.BUDGET
    assert not Cycle.objects.exists()


def test_notifications_are_sent_at_80_and_100_percent_once_a_period(limits):
    watch = WatchFactory()
    cycle = CycleFactory(watch=watch)
    for cost in ("4.7", "0.1", "0.2", "1.0", "0.5"):
        SessionFactory(cycle=CycleFactory(watch=watch), cost_usd=Decimal(cost))
        notify_of_use(budgets_of_cycle(cycle), watch)

    told = [
        (notification.watch, notification.severity) for notification in Notification.objects.all()
    ]
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


def test_a_queued_tier_does_not_start_once_the_budget_is_spent(fake_cli, session, settings):
    fake_cli.reports(ESCALATE)
    waiting = child_of(run(session))
    settings.CLAUDEOPS_BUDGET_MONTH = Decimal(0)

    ended = run(waiting)

    assert (ended.status, len(fake_cli.calls)) == (Session.Status.FAILED, 1)
    assert ended.error.startswith("The budget is spent: ")
    assert ended.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert causes() == {(Incident.Kind.PROBLEM, "web")}, "the incident of the service says why"
    assert told().count(Notification.Kind.BUDGET) == 1


def test_a_cycle_refused_by_a_spent_budget_sends_one_notification(fake_cli, session, settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(0)

    ended = run(session)

    assert (ended.cycle.outcome, fake_cli.calls) == (Cycle.Outcome.COULD_NOT_RUN, [])
    assert causes() == {(Incident.Kind.COULD_NOT_RUN, WhyNot.BUDGET)}
    assert told() == [Notification.Kind.BUDGET]


def test_a_spent_chain_budget_is_reported_by_its_incident(session, settings):
    settings.CLAUDEOPS_BUDGET_CHAIN = Decimal(0)

    run(session)

    assert causes() == {(Incident.Kind.COULD_NOT_RUN, WhyNot.CHAIN_BUDGET)}
    assert told() == [Notification.Kind.INCIDENT_OPENED]


def test_the_cli_gets_the_remaining_budget(fake_cli, session, settings):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(1)
    SessionFactory(cost_usd=Decimal("0.75"))
    fake_cli.reports(HEALTHY)

    run(session)

    assert Decimal(fake_cli.calls[0].flag("--max-budget-usd")) == Decimal("0.25")


def test_all_budgets_are_shown_with_a_forecast(limits):
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


def test_a_cycle_starts_while_something_is_left(limits):
    assert refusal_for(WatchFactory()) == ""
    assert not Notification.objects.exists()
