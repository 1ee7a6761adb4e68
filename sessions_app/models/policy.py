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
    approval_tiers: frozenset[int] = frozenset()
    """Those that start only after a person's word."""

    def needs_approval(self, tier: int) -> bool:
        return tier in self.approval_tiers

    def narrowed_by(self, other: Policy) -> Policy:
        return Policy(
            max_tier=min(self.max_tier, other.max_tier),
            dry_run=self.dry_run or other.dry_run,
            approval_tiers=self.approval_tiers | other.approval_tiers,
        )


def read_tiers(words: str) -> frozenset[int]:
    """`2,3` as tiers; `none` and nothing are none. ValueError names what is neither."""
    tiers = set()
    for word in words.replace(",", " ").split():
        if word.lower() == "none":
            continue
        if not word.isdecimal() or not LOWEST_TIER <= int(word) <= HIGHEST_TIER:
            raise ValueError(f"{word!r} is no tier: write 2, 3, 2,3 or none")
        tiers.add(int(word))
    return frozenset(tiers)


def written_tiers(tiers: frozenset[int]) -> str:
    """As a watch keeps them."""
    return ",".join(map(str, sorted(tiers)))


def objection_to(tier: int, policy: Policy) -> str:
    """Why a tier must not be started, or nothing. Looking is always allowed, and in a dry run
    every tier that starts does nothing else."""
    if tier == LOWEST_TIER:
        return ""
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
