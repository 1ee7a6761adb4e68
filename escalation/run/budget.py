"""What one run may spend: asked between two of its requests, by the gateway's count.

The run's own budget is known from the start. What its chain, its watch and the installation have
left changes while other runs spend, and is looked up anew at each heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from escalation.agent import COST_STEP
from escalation.gateway.spending import Spending
from escalation.run.cost import weighted_tokens
from sessions_app.reading.budgets import Budget, Spent, first_spent, least_left
from sessions_app.reading.formatting import exact_money


class RunBudget:
    def __init__(
        self, *, price: Decimal | None, own: Decimal, shared: Iterable[Budget] = ()
    ) -> None:
        """Of the shared budgets this run's own part is not in what is spent."""
        self._price = price
        self._own = own
        self._shared = tuple(shared)

    @property
    def left(self) -> Decimal:
        """What the CLI is told at the start."""
        shared = least_left(self._shared)
        return self._own if shared is None else min(self._own, shared)

    def renew(self, shared: Iterable[Budget]) -> None:
        """By the run's own thread; the gateway's threads see the old values or the new ones."""
        self._shared = tuple(shared)

    def spent(self, spending: Spending) -> Decimal | None:
        """None before any run of the model has told its price: then only the CLI can know."""
        if self._price is None:
            return None
        return (weighted_tokens(spending.tokens) * self._price).quantize(COST_STEP)

    def objection(self, spending: Spending) -> str:
        """Why the run may ask for nothing more, or nothing."""
        spent = self.spent(spending) or Decimal(0)
        if spent and spent >= self._own:
            own = exact_money(self._own)
            return f"The run's budget of {own} is spent. Raise it if it should spend more."
        added = Spent(total=spent, guessed=spent)
        if over := first_spent(budget.after(added) for budget in self._shared):
            return over.refusal[:1].upper() + over.refusal[1:]
        return ""
