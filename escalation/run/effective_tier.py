"""The tier as one run may use it: its own settings, narrowed by what the run is for."""

from __future__ import annotations

from dataclasses import replace

from escalation.tiers import LOWEST_TIER, Tier, dry_run_walls, get_tier, question_walls
from sessions_app.models import Session


def effective_tier(session: Session) -> Tier:
    tier = _as_chosen(get_tier(session.tier), session)
    if (session.cycle.policy.dry_run or session.is_plan) and tier.number > LOWEST_TIER:
        tier = dry_run_walls(tier, get_tier(LOWEST_TIER))
    return question_walls(tier) if session.is_question else tier


def _as_chosen(tier: Tier, session: Session) -> Tier:
    """What a person chose for this run; settings that became stricter since still hold."""
    return replace(
        tier,
        model=session.model,
        max_turns=min(tier.max_turns, session.max_turns or tier.max_turns),
        max_budget_usd=min(tier.max_budget_usd, session.max_budget_usd or tier.max_budget_usd),
    )
