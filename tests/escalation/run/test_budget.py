"""What one run may spend, by its own budget and by those that it shares."""

from __future__ import annotations

from decimal import Decimal

import pytest

from escalation.agent import Tokens
from escalation.gateway.spending import Spending
from escalation.run.budget import RunBudget
from sessions_app.reading.budgets import Budget, Scope, Spent

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
def test_a_run_is_ended_between_two_requests_when_its_budget_is_spent(price, dollars, says):
    said = RunBudget(price=price, own=Decimal(2)).objection(used(dollars))

    assert (says in said) if says else said == ""


@pytest.mark.parametrize(
    ("shared", "dollars", "over"),
    [
        ([day(5, 3)], 1.9, False),
        ([day(5, 3)], 2, True),
        ([day(5), day(1, 1)], 0, True),
        ([day(0)], 0, True),
        ([], 5, False),
    ],
)
def test_what_it_has_used_counts_with_what_others_have_spent(shared, dollars, over):
    budget = RunBudget(price=PRICE, own=Decimal(10), shared=shared)

    assert bool(budget.objection(used(dollars))) == over


def test_what_others_spend_meanwhile_counts_without_a_price_too():
    budget = RunBudget(price=None, own=Decimal(10), shared=[day(5, 3)])
    before = budget.objection(used(0))

    budget.renew([day(5, 5)])

    assert before == ""
    assert budget.objection(used(0)).startswith("$5.00 of the $5.00 for today is spent")


def test_the_cli_is_given_the_least_of_what_is_left():
    assert RunBudget(price=None, own=Decimal(2)).left == 2
    assert RunBudget(price=None, own=Decimal(2), shared=[day(5, "4.5"), day(9)]).left == Decimal(
        "0.5"
    )


def test_an_estimate_is_said_to_be_one():
    said = RunBudget(price=PRICE, own=Decimal(9), shared=[day(5, 3)]).objection(used(2.5))

    assert "$2.50 of it estimated" in said
