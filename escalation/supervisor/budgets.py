"""Budgets: refuses starts over a budget, and notifies once for each period."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from django.urls import reverse

from escalation.errors import OperationRefused, RefusalCode
from escalation.notifications.outbox import notify
from escalation.report import Report
from escalation.supervisor import cooldowns
from escalation.supervisor.cooldowns import Reached
from escalation.tiers import get_tier
from sessions_app.costs.budgets import Budget, Scope, Spent, first_spent
from sessions_app.costs.spending import budgets_of_cycle, budgets_of_session, budgets_of_watch
from sessions_app.models import BudgetNotice, Cycle, Incident, Notification, Session, Watch
from sessions_app.models.autonomy import Policy

NEARLY, WHOLLY = 80, 100


def require_budget(cycle: Cycle, *, with_chain: bool = True) -> None:
    """Refuses a start over a spent budget. `with_chain`: that of the chain counts, too."""
    budgets = budgets_of_cycle(cycle)
    if spent := first_spent(
        budget for budget in budgets if with_chain or budget.scope != Scope.CHAIN
    ):
        raise OperationRefused(RefusalCode.BUDGET, f"Nothing was started: {spent.refusal}")


def refusal_for(watch: Watch) -> str:
    """Returns why no cycle of this watch is started, or nothing. Sends notifications."""
    budgets = budgets_of_watch(watch)
    notify_of_use(budgets, watch)
    spent = first_spent(budgets)
    return spent.refusal if spent else ""


def notify_of_use(budgets: Iterable[Budget], watch: Watch | None) -> None:
    """Notifies when a budget is nearly and when it is wholly spent, except that of a chain."""
    for budget in budgets:
        if budget.period is None or not budget.is_nearly_spent:
            continue
        _notify_once(budget, budget.period, WHOLLY if budget.is_spent else NEARLY, watch)


def _notify_once(budget: Budget, period: date, percent: int, watch: Watch | None) -> None:
    """Sends one notification, even if two sessions end at once."""
    _notice, is_first = BudgetNotice.objects.get_or_create(
        budget=budget.name, period=period, percent=percent
    )
    if not is_first:
        return
    is_over = percent == WHOLLY
    notify(
        Notification.Kind.BUDGET,
        budget.sentence,
        severity=Incident.Severity.CRITICAL if is_over else Incident.Severity.WARNING,
        text="New tiers are not started." if is_over else "At 100 % new tiers are not started.",
        watch=watch if budget.name.startswith("watch:") else None,
        path=reverse("web:costs"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldEscalation:
    reason: str
    """The reason, without a period."""
    reached: Reached | None = None
    """The cooldown, if it holds the tier back."""


def held_back(
    session: Session,
    report: Report,
    policy: Policy,
    cost: Spent = Spent(),  # noqa: B008 (frozen)
) -> HeldEscalation | None:
    """Returns why the next tier is not started, if a budget or a cooldown holds it back.

    `cost`: that of the session itself, which is not stored yet. A dry run has no cooldowns.
    """
    tier = session.tier + 1
    budgets = budgets_of_cycle(session.cycle, without=session)
    if spent := first_spent(budget.after(cost) for budget in budgets):
        return HeldEscalation(reason=spent.sentence)
    if policy.dry_run:
        return None
    if reached := cooldowns.objection_to_tier(session.cycle, tier, report):
        return HeldEscalation(reason=reached.reason, reached=reached)
    return None


def tell_held(session: Session, held: HeldEscalation | None) -> None:
    """Notifies of the cooldown that held a tier back, if any."""
    if held is not None and held.reached is not None:
        cooldowns.tell_reached(session, held.reached)


# A session has spent nothing when it starts. So that a budget with room for one does not let many
# start together, each running session counts with its usual cost until it has spent more.

LATEST_SESSIONS = 20
"""The sessions of a tier from which its usual cost is computed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnderWay:
    cycle: int
    watch: int | None
    still_to_come: Decimal


def waits_for_others(session: Session) -> str:
    """Returns why the session must wait for the costs of others, or nothing. A drill never waits. A
    budget that is spent already is refused elsewhere."""
    if session.is_drill:
        return ""
    budgets = budgets_of_session(session)
    return promised_away(budgets, session.cycle, _under_way(session)) if budgets else ""


def promised_away(budgets: Iterable[Budget], cycle: Cycle, running: Iterable[UnderWay]) -> str:
    """Returns the first budget that the running sessions will probably use up."""
    runs = tuple(running)
    for budget in budgets:
        theirs = [run for run in runs if _counts_for(budget.scope, run, cycle)]
        expected = sum((run.still_to_come for run in theirs), Decimal(0))
        if not budget.is_spent and budget.after(Spent(total=expected)).is_spent:
            return f"{budget.sentence}, and running sessions may need the rest"
    return ""


def _counts_for(scope: Scope, run: UnderWay, cycle: Cycle) -> bool:
    if scope == Scope.CHAIN:
        return run.cycle == cycle.pk
    return scope != Scope.WATCH_DAY or run.watch == cycle.watch_id


def _under_way(session: Session) -> list[UnderWay]:
    """Returns the running sessions, with those that started before midnight."""
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
    """Returns the mean cost of the latest sessions of a tier, or its limit without any."""
    latest = Session.objects.real().filter(tier=tier).exclude(cost_usd=None).order_by("-pk")
    costs = list(latest.values_list("cost_usd", flat=True)[:LATEST_SESSIONS])
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) / len(known) if known else get_tier(tier).max_budget_usd
