"""What is allowed here, for `doctor`: a new watch, and budgets."""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError

from sessions_app.models import Watch
from sessions_app.reading.spending import load_budgets


def current_policy() -> dict[str, Any]:
    """A database that does not answer must not hide what the CLI does."""
    try:
        return _policy()
    except DatabaseError as error:
        return {"budgets": [f"unknown: {error}"]}


def _policy() -> dict[str, Any]:
    budgets = load_budgets()
    standing = [f"{budget.label}: {budget.sentence}" for budget in budgets.limited]
    running = Watch.objects.filter(enabled=True).count()
    return {
        "a_new_watch": f"{Watch().trust_title}, and runs only when asked",
        "watches_that_run": f"{running} of {Watch.objects.count()} by themselves",
        "budgets": standing or ["no limit"],
        "expected_this_month": budgets.forecast.sentence,
    }
