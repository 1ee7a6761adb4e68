"""Budgets in dollars: what is spent, what is left, and what the month will come to. Pure.

A run that is under way counts with what it has used so far, and one that told no figure with its
estimate: in a limit a guess is better than nothing, and it is said how much of it is one.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, time, tzinfo
from decimal import Decimal
from enum import StrEnum

from sessions_app.reading.formatting import money

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
    """The part of it that is estimated."""

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
    """Its own, for the record of who was told: `day`, `watch:3`."""
    period: date | None = None
    """The first day of its period; a chain has none."""
    label: str = ""

    def after(self, more: Spent) -> Budget:
        """As it stands once that is spent too."""
        total, guessed = self.spent.total + more.total, self.spent.guessed + more.guessed
        return replace(self, spent=Spent(total=total, guessed=guessed))

    @property
    def left(self) -> Decimal:
        return max(NOTHING, self.limit - self.spent.total)

    @property
    def is_spent(self) -> bool:
        """Nothing allowed is spent from the beginning."""
        return self.spent.total >= self.limit

    @property
    def is_nearly_spent(self) -> bool:
        return self.spent.total >= self.limit * WARNS_AT

    @property
    def share(self) -> Decimal:
        """From 0 to 1, for a bar."""
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
        """With what to do."""
        advice = f"Raise {SETTINGS[self.scope]}"
        if self.scope == Scope.WATCH_DAY:
            advice += " or the watch's own limit"
        wait = {Scope.CHAIN: "", Scope.MONTH: ", or wait for the next month"}
        return f"{self.sentence}. {advice}{wait.get(self.scope, ', or wait until tomorrow')}."


def least_left(budgets: Iterable[Budget]) -> Decimal | None:
    """What a run may still spend; None where nothing limits it."""
    return min((budget.left for budget in budgets), default=None)


def first_spent(budgets: Iterable[Budget]) -> Budget | None:
    return next((budget for budget in budgets if budget.is_spent), None)


def start_of_day(now: datetime, zone: tzinfo) -> datetime:
    return datetime.combine(now.astimezone(zone).date(), time.min, tzinfo=zone)


def start_of_month(now: datetime, zone: tzinfo) -> datetime:
    return datetime.combine(now.astimezone(zone).date().replace(day=1), time.min, tzinfo=zone)


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What the month will come to, from two ways of looking at it."""

    spent: Decimal
    by_month: Decimal
    """If the rest is like the days of this month so far."""
    by_week: Decimal
    """If the rest is like the last seven days."""

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
    """`first` is the day of the first run ever: a week that is not over yet has fewer days."""
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
