"""The tier as one run may use it: its own settings, narrowed by what the run is for."""

from __future__ import annotations

from escalation.tiers import LOWEST_TIER, Tier, dry_run_walls, get_tier, question_walls
from sessions_app.models import Session


def effective_tier(session: Session) -> Tier:
    tier = get_tier(session.tier)
    if session.cycle.dry_run and tier.number > LOWEST_TIER:
        tier = dry_run_walls(tier, get_tier(LOWEST_TIER))
    return question_walls(tier) if session.is_question else tier
