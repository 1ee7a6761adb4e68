"""Budgets in US dollars and the forecast of the month. Pure functions.

A running session counts with its cost so far, and a session without a reported cost with its
estimate. The estimated part is stated.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, time, tzinfo
from decimal import Decimal
from enum import StrEnum

from sessions_app.text import money

WARNS_AT = Decimal("0.8")
NOTHING = Decimal(0)


class Scope(StrEnum):
    CHAIN = "chain"
    WATCH_DAY = "watch"
    DAY = "day"
    MONTH = "month"


SETTINGS = {
    Scope.CHAIN: "CLAUDEOPS_BUDGET_CHAIN",
    Scope.WATCH_DAY: "CLAUDEOPS_BUDGET_WATCH_DAY",
    Scope.DAY: "CLAUDEOPS_BUDGET_DAY",
    Scope.MONTH: "CLAUDEOPS_BUDGET_MONTH",
}
WHOSE = {
    Scope.CHAIN: "this chain",
    Scope.WATCH_DAY: "this watch for today",
    Scope.DAY: "today",
    Scope.MONTH: "this month",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    total: Decimal = NOTHING
    guessed: Decimal = NOTHING
    """Estimated part of the total."""

    @property
    def reported(self) -> Decimal:
        return self.total - self.guessed

    def and_reported(self, more: Decimal) -> Spent:
        return Spent(total=self.total + more, guessed=self.guessed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    scope: Scope
    limit: Decimal
    spent: Spent
    name: str
    """Key in `BudgetNotice`, like `day` or `watch:3`."""
    period: date | None = None
    """First day of the period; None for a chain."""
    label: str = ""

    def after(self, more: Spent) -> Budget:
        """Return the budget with an additional expense."""
        total, guessed = self.spent.total + more.total, self.spent.guessed + more.guessed
        return replace(self, spent=Spent(total=total, guessed=guessed))

    @property
    def left(self) -> Decimal:
        return max(NOTHING, self.limit - self.spent.total)

    @property
    def is_spent(self) -> bool:
        """True if nothing is left; a budget of 0 is always spent."""
        return self.spent.total >= self.limit

    @property
    def is_nearly_spent(self) -> bool:
        return self.spent.total >= self.limit * WARNS_AT

    @property
    def share(self) -> Decimal:
        """Spent share from 0 to 1."""
        if self.is_spent:
            return Decimal(1)
        return min(Decimal(1), max(NOTHING, self.spent.total / self.limit))

    @property
    def tone(self) -> str:
        return "bad" if self.is_spent else "warn" if self.is_nearly_spent else "good"

    @property
    def sentence(self) -> str:
        guessed = f", {money(self.spent.guessed)} of it estimated" if self.spent.guessed else ""
        return (
            f"{money(self.spent.total)} of the {money(self.limit)} for {WHOSE[self.scope]} "
            f"is spent{guessed}"
        )

    @property
    def refusal(self) -> str:
        """Reason to refuse a session, with advice."""
        advice = f"Raise {SETTINGS[self.scope]}"
        if self.scope in (Scope.DAY, Scope.MONTH):
            advice += ", or the limit on the page Costs"
        if self.scope == Scope.WATCH_DAY:
            advice += " or the watch's own limit"
        wait = {Scope.CHAIN: "", Scope.MONTH: ", or wait for the next month"}
        return f"{self.sentence}. {advice}{wait.get(self.scope, ', or wait until tomorrow')}."


def least_left(budgets: Iterable[Budget]) -> Decimal | None:
    """Return the amount that a session may still spend; None without a budget."""
    return min((budget.left for budget in budgets), default=None)


def first_spent(budgets: Iterable[Budget]) -> Budget | None:
    return next((budget for budget in budgets if budget.is_spent), None)


def start_of_day(now: datetime, zone: tzinfo) -> datetime:
    return datetime.combine(now.astimezone(zone).date(), time.min, tzinfo=zone)


def start_of_month(now: datetime, zone: tzinfo) -> datetime:
    return datetime.combine(now.astimezone(zone).date().replace(day=1), time.min, tzinfo=zone)


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Expected cost of the month, from two trends."""

    spent: Decimal
    by_month: Decimal
    """By the average of this month so far."""
    by_week: Decimal
    """By the average of the last seven days."""

    @property
    def low(self) -> Decimal:
        return min(self.by_month, self.by_week)

    @property
    def high(self) -> Decimal:
        return max(self.by_month, self.by_week)

    @property
    def sentence(self) -> str:
        low, high = money(self.low), money(self.high)
        return low if low == high else f"{low} to {high}"


def forecast(spent: Decimal, last_week: Decimal, first: date | None, today: date) -> Forecast:
    """Compute the forecast. `first` is the day of the first session, for shorter averages."""
    days = monthrange(today.year, today.month)[1]
    ahead = days - today.day
    known = 7 if first is None else min(7, max(1, (today - first).days + 1))
    passed = today.day
    if first is not None and first > today.replace(day=1):
        passed = max(1, (today - first).days + 1)
    return Forecast(
        spent=spent,
        by_month=spent + spent / passed * ahead,
        by_week=spent + last_week / known * ahead,
    )
