"""What the runs that are under way will probably still spend.

Nothing is spent in the moment in which a run begins, so a budget with room for one more would let
any number of them begin together. Those that run count with what such a run usually costs, until
they have spent more than that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from escalation.tiers import get_tier
from sessions_app.models import Cycle, Session
from sessions_app.reading.budgets import Budget, Scope, Spent
from sessions_app.reading.spending import budgets_of_cycle

LOOKED_AT = 20
"""The latest runs of a tier."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnderWay:
    cycle: int
    watch: int | None
    still_to_come: Decimal


def waits_for_others(session: Session) -> str:
    """Why it must wait until others have told what they cost, or nothing. No drill waits: none of
    them costs. What is spent already is no reason to wait: that is refused."""
    if session.is_drill:
        return ""
    budgets = budgets_of_cycle(session.cycle, without=session)
    return promised_away(budgets, session.cycle, _under_way(session)) if budgets else ""


def promised_away(budgets: Iterable[Budget], cycle: Cycle, running: Iterable[UnderWay]) -> str:
    """Pure. The first budget that the runs under way will probably use up."""
    runs = tuple(running)
    for budget in budgets:
        theirs = [run for run in runs if _counts_for(budget.scope, run, cycle)]
        expected = sum((run.still_to_come for run in theirs), Decimal(0))
        if not budget.is_spent and budget.after(Spent(total=expected)).is_spent:
            return f"{budget.sentence}, and what runs now may need the rest"
    return ""


def _counts_for(scope: Scope, run: UnderWay, cycle: Cycle) -> bool:
    if scope == Scope.CHAIN:
        return run.cycle == cycle.pk
    return scope != Scope.WATCH_DAY or run.watch == cycle.watch_id


def _under_way(session: Session) -> list[UnderWay]:
    """As few as may run at once. One that began before midnight counts: it is the same money."""
    running = Session.objects.real().filter(status=Session.Status.RUNNING).exclude(pk=session.pk)
    rows = list(running.values_list("cycle", "watch", "tier", "max_budget_usd", "spent_so_far_usd"))
    usual = {tier: usual_cost(tier) for tier in {row[2] for row in rows}}
    return [
        UnderWay(
            cycle=cycle,
            watch=watch,
            still_to_come=max(
                Decimal(0), min(usual[tier], most or usual[tier]) - (spent or Decimal(0))
            ),
        )
        for cycle, watch, tier, most, spent in rows
    ]


def usual_cost(tier: int) -> Decimal:
    """The mean of the latest runs; before there is one, all that such a run may spend."""
    latest = Session.objects.real().filter(tier=tier).exclude(cost_usd=None).order_by("-pk")
    costs = list(latest.values_list("cost_usd", flat=True)[:LOOKED_AT])
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) / len(known) if known else get_tier(tier).max_budget_usd
