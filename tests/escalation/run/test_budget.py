"""Limits of what one session may spend, by its own and by shared budgets."""

from __future__ import annotations

from decimal import Decimal

import pytest

from escalation.agent.stream import Tokens
from escalation.run.prepare import RunBudget
from escalation.sandbox.api_proxy import Spending
from sessions_app.costs.budgets import Budget, Scope, Spent
from tests.tables import each_row

PRICE = Decimal("0.000001")


def day(limit: object, spent: object = 0) -> Budget:
    return Budget(
        scope=Scope.DAY,
        limit=Decimal(str(limit)),
        spent=Spent(total=Decimal(str(spent))),
        name="day",
    )


def used(dollars: float) -> Spending:
    return Spending(by_model={"haiku": Tokens(input=int(dollars * 1_000_000))})


@pytest.mark.parametrize(
    ("price", "dollars", "says"),
    [
        (None, 1000, ""),
        (PRICE, 0.999999, ""),
        (PRICE, 2, "budget of $2.00 is spent"),
    ],
)
def test_a_session_is_stopped_between_two_requests_when_its_budget_is_spent(price, dollars, says):
    said = RunBudget(price=price, own=Decimal(2)).objection(used(dollars))

    assert (says in said) if says else said == ""


@each_row(
    ("shared", "dollars", "over"),
    [
        ([day(5, 3)], 1.9, False),
        ([day(5, 3)], 2, True),
        ([day(5), day(1, 1)], 0, True),
        ([day(0)], 0, True),
        ([], 5, False),
    ],
)
def test_own_spending_adds_to_shared_budgets(shared, dollars, over):
    budget = RunBudget(price=PRICE, own=Decimal(10), shared=shared)

    assert bool(budget.objection(used(dollars))) == over


def test_renewed_budgets_count_without_a_price():
    budget = RunBudget(price=None, own=Decimal(10), shared=[day(5, 3)])
    before = budget.objection(used(0))

    budget.renew([day(5, 5)])

    assert before == ""
    assert budget.objection(used(0)).startswith("$5.00 of the $5.00 for today is spent")


def test_cli_gets_the_smallest_budget():
    assert RunBudget(price=None, own=Decimal(2)).left == 2
    assert RunBudget(price=None, own=Decimal(2), shared=[day(5, "4.5"), day(9)]).left == Decimal(
        "0.5"
    )


def test_refusal_marks_an_estimate():
    said = RunBudget(price=PRICE, own=Decimal(9), shared=[day(5, 3)]).objection(used(2.5))

    assert "$2.50 of it estimated" in said
