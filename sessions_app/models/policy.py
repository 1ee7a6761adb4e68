"""How far a cycle may go: the one rule that every way of starting a tier is held to.

The decision after a run, a person's request, a command, the start of a cycle and the moment before
a process is started all ask here, and so do the pages that offer what can be done.
"""

from __future__ import annotations

from dataclasses import dataclass

LOWEST_TIER, HIGHEST_TIER = 1, 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    max_tier: int
    dry_run: bool

    def narrowed_by(self, other: Policy) -> Policy:
        return Policy(
            max_tier=min(self.max_tier, other.max_tier), dry_run=self.dry_run or other.dry_run
        )


def objection_to(tier: int, policy: Policy) -> str:
    """Why a tier must not be started, or nothing. Looking is always allowed."""
    if tier == LOWEST_TIER:
        return ""
    if policy.dry_run:
        return "this is a dry run"
    if tier > HIGHEST_TIER:
        return f"there is no tier above {HIGHEST_TIER}"
    if tier > policy.max_tier:
        return f"the policy allows no tier above {policy.max_tier}"
    return ""


def refusal(tier: int, policy: Policy) -> str:
    """The objection as a sentence that says what to do about it, or nothing."""
    why = objection_to(tier, policy)
    if not why:
        return ""
    advice = " If it should run, change the watch and run a new cycle."
    return f"Tier {tier} is not started: {why}.{advice if tier <= HIGHEST_TIER else ''}"
