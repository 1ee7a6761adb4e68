"""What a person changes for one run: another model, fewer turns, less money. Never more than the
tier allows: more is a matter of settings.

The choice holds for the run and for the runs that go on with its work in the same tier. The next
tier, and whatever a person starts later, is as usual again.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from escalation.errors import OperationRefused
from escalation.tiers import LOWEST_TIER, Tier, get_tier
from sessions_app.models import Session
from sessions_app.reading.formatting import exact_money


@dataclass(frozen=True, kw_only=True, slots=True)
class RunChoice:
    model: str = ""
    max_turns: int | None = None
    max_budget_usd: Decimal | None = None

    def fields(self, number: int) -> dict[str, Any]:
        """The columns of a session of that tier. Raises OperationRefused."""
        tier = get_tier(number)
        objections = (
            _objection_to_model(self.model, tier),
            _objection_to_turns(self.max_turns, tier),
            _objection_to_budget(self.max_budget_usd, tier),
        )
        if why := " ".join(filter(None, objections)):
            raise OperationRefused(why)
        return {
            "model": self.model or tier.model,
            "max_turns": self.max_turns,
            "max_budget_usd": self.max_budget_usd,
        }


AS_USUAL = RunChoice()


def carried_over(session: Session) -> dict[str, Any]:
    """For a run that goes on with the work of this one, in the same tier."""
    return {
        "model": session.model,
        "max_turns": session.max_turns,
        "max_budget_usd": session.max_budget_usd,
    }


def _objection_to_model(model: str, tier: Tier) -> str:
    """Names are compared, not strengths: which model is stronger, only the settings know."""
    allowed = models_of(tier.number)
    if not model or model in allowed:
        return ""
    return (
        f"Tier {tier.number} cannot run with the model {model}: a run takes the model of its own "
        f"tier or of a lower one, here {' or '.join(allowed)}."
    )


def models_of(number: int) -> tuple[str, ...]:
    """The models that a run of the tier may take, its own first."""
    numbers = range(number, LOWEST_TIER - 1, -1)
    return tuple(dict.fromkeys(get_tier(lower).model for lower in numbers))


def _objection_to_turns(turns: int | None, tier: Tier) -> str:
    if turns is None or 1 <= turns <= tier.max_turns:
        return ""
    return f"Tier {tier.number} runs for 1 to {tier.max_turns} turns, not for {turns}."


def _objection_to_budget(budget: Decimal | None, tier: Tier) -> str:
    if budget is None or 0 < budget <= tier.max_budget_usd:
        return ""
    return (
        f"Tier {tier.number} may spend more than $0.00 and at most "
        f"{exact_money(tier.max_budget_usd)}, not {exact_money(budget)}."
    )
