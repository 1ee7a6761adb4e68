"""Budgets in force: what is refused because of them, and who is told when. Once for each period."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from django.urls import reverse

from escalation.errors import OperationRefused
from escalation.word.happenings import tell
from sessions_app.models import BudgetNotice, Cycle, Happening, Incident, Watch
from sessions_app.reading.budgets import Budget, first_spent
from sessions_app.reading.spending import budgets_of_cycle, budgets_of_watch

NEARLY, WHOLLY = 80, 100


def require_budget(cycle: Cycle) -> None:
    """Nothing that costs is started over a budget."""
    if spent := first_spent(budgets_of_cycle(cycle)):
        raise OperationRefused(f"Nothing was started: {spent.refusal}")


def refusal_for(watch: Watch) -> str:
    """Why a round of this watch is not started, or nothing. People are told of it."""
    budgets = budgets_of_watch(watch)
    note_standing(budgets, watch)
    spent = first_spent(budgets)
    return spent.refusal if spent else ""


def note_standing(budgets: Iterable[Budget], watch: Watch | None) -> None:
    """Told when a budget is nearly and when it is wholly spent; a chain's ends with the chain."""
    for budget in budgets:
        if budget.period is None or not budget.is_nearly_spent:
            continue
        _tell_once(budget, budget.period, WHOLLY if budget.is_spent else NEARLY, watch)


def _tell_once(budget: Budget, period: date, percent: int, watch: Watch | None) -> None:
    """The row decides, so that of two runs that end at once only one tells."""
    _notice, is_first = BudgetNotice.objects.get_or_create(
        budget=budget.name, period=period, percent=percent
    )
    if not is_first:
        return
    is_over = percent == WHOLLY
    tell(
        Happening.Kind.BUDGET,
        budget.sentence[:200],
        severity=Incident.Severity.CRITICAL if is_over else Incident.Severity.WARNING,
        text="New tiers are not started." if is_over else "At 100 % new tiers are not started.",
        watch=watch if budget.name.startswith("watch:") else None,
        path=reverse("sessions_app:costs"),
    )
