"""What holds the next tier back besides the watch's own limits: looked up before an escalation."""

from __future__ import annotations

from dataclasses import dataclass

from escalation.policy import change_record
from escalation.policy.cooldowns import Reached
from escalation.report import Report
from sessions_app.models import Session
from sessions_app.models.policy import Policy
from sessions_app.reading.budgets import Spent, first_spent
from sessions_app.reading.spending import budgets_of_cycle


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    reason: str
    """Without a period: it ends a sentence."""
    reached: Reached | None = None
    """The cooldown, where that is what holds it."""


def held_back(
    session: Session,
    report: Report,
    policy: Policy,
    cost: Spent = Spent(),  # noqa: B008 (frozen)
) -> Held | None:
    """Why the tier that a report asks for is not started. The run's own cost is not stored yet. In
    a dry run nothing is done twice."""
    tier = session.tier + 1
    budgets = budgets_of_cycle(session.cycle, without=session)
    if spent := first_spent(budget.after(cost) for budget in budgets):
        return Held(reason=spent.sentence)
    if policy.dry_run:
        return None
    if reached := change_record.objection_to_tier(session.cycle, tier, report):
        return Held(reason=reached.reason, reached=reached)
    return None


def tell_held(session: Session, held: Held | None) -> None:
    """Nothing held is nothing to tell."""
    if held is not None and held.reached is not None:
        change_record.tell_reached(session, held.reached)
