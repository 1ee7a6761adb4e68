"""Policy of a watch or cycle, and its five autonomy levels. Pure functions.

An autonomy level is a name for three settings of a watch: the highest tier, dry run, and the tiers
that need approval. Other combinations are "by hand".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from sessions_app.tiers import LOWEST_TIER, SAFE, full_tiers, highest_tier, tier_numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Limits that every way of starting a tier is checked against."""

    max_tier: int
    dry_run: bool
    approval_tiers: frozenset[int] = frozenset()
    """Tiers that start after a person has approved them."""

    def needs_approval(self, tier: int) -> bool:
        return tier in self.approval_tiers

    def allowing(self, tier: int) -> Policy:
        """Return the policy of a session whose tier a person allowed once: it runs for real."""
        return replace(self, max_tier=max(self.max_tier, tier), dry_run=False)

    def narrowed_by(self, other: Policy) -> Policy:
        return Policy(
            max_tier=min(self.max_tier, other.max_tier),
            dry_run=self.dry_run or other.dry_run,
            approval_tiers=self.approval_tiers | other.approval_tiers,
        )


def read_tiers(words: str) -> frozenset[int]:
    """Parse tiers like `2,3`; `none` and empty text mean no tier. Raise ValueError otherwise."""
    tiers = set()
    for word in words.replace(",", " ").split():
        if word.lower() == "none":
            continue
        if not word.isdecimal() or int(word) < LOWEST_TIER:
            raise ValueError(_no_tier(word))
        tiers.add(int(word))
    return frozenset(tiers)


def read_configured_tiers(words: str) -> frozenset[int]:
    """Parse tiers from a form, and raise ValueError for tiers that are not configured."""
    tiers = read_tiers(words)
    if unknown := tiers - set(tier_numbers()):
        raise ValueError(_no_tier(str(min(unknown))))
    return tiers


def _no_tier(word: str) -> str:
    return f"{word!r} is not a tier: write 2, 3, 2,3 or none"


def written_tiers(tiers: frozenset[int]) -> str:
    """Format tiers as `Watch.approval` stores them."""
    return ",".join(map(str, sorted(tiers)))


def objection_to(tier: int, policy: Policy) -> str:
    """Return why the policy forbids a tier, or an empty string. Tier 1 is always allowed."""
    if tier == LOWEST_TIER:
        return ""
    if tier > highest_tier():
        return f"there is no tier above {highest_tier()}"
    if tier > policy.max_tier:
        return f"the policy allows no tier above {policy.max_tier}"
    return ""


def refusal(tier: int, policy: Policy) -> str:
    """Return the objection as a sentence with advice, or an empty string."""
    why = objection_to(tier, policy)
    if not why:
        return ""
    advice = " If it should run, change the watch and run a new cycle."
    return f"Tier {tier} is not started: {why}.{advice if tier <= highest_tier() else ''}"


class AutonomyLevel(StrEnum):
    """Autonomy levels from the lowest to the highest."""

    LOOK = "look"
    SAFE_WITH_APPROVAL = "safe-with-approval"
    SAFE = "safe"
    ALL_WITH_APPROVAL = "all-with-approval"
    ALL = "all"

    @property
    def label(self) -> str:
        return LABELS[self]

    @property
    def meaning(self) -> str:
        return MEANINGS[self]

    @property
    def policy(self) -> Policy:
        full = frozenset(full_tiers(tier_numbers()))
        match self:
            case AutonomyLevel.LOOK:
                return Policy(max_tier=LOWEST_TIER, dry_run=True, approval_tiers=full)
            case AutonomyLevel.SAFE_WITH_APPROVAL:
                return Policy(max_tier=SAFE, dry_run=False, approval_tiers=full | {SAFE})
            case AutonomyLevel.SAFE:
                return Policy(max_tier=SAFE, dry_run=False, approval_tiers=full)
            case AutonomyLevel.ALL_WITH_APPROVAL:
                return Policy(max_tier=highest_tier(), dry_run=False, approval_tiers=full)
            case AutonomyLevel.ALL:
                return Policy(max_tier=highest_tier(), dry_run=False)

    @property
    def rank(self) -> int:
        return list(AutonomyLevel).index(self)


BY_HAND = "by hand"
LABELS = {
    AutonomyLevel.LOOK: "look",
    AutonomyLevel.SAFE_WITH_APPROVAL: "safe remedies with approval",
    AutonomyLevel.SAFE: "safe remedies",
    AutonomyLevel.ALL_WITH_APPROVAL: "everything with approval",
    AutonomyLevel.ALL: "everything",
}
MEANINGS = {
    AutonomyLevel.LOOK: "Tier 1 observes and reports. No higher tier starts, nothing is changed.",
    AutonomyLevel.SAFE_WITH_APPROVAL: (
        "Tier 2 may apply safe remedies, like restarts, after a person has approved it."
    ),
    AutonomyLevel.SAFE: "Tier 2 applies safe remedies, like restarts, without approval.",
    AutonomyLevel.ALL_WITH_APPROVAL: (
        "Tier 2 starts without approval. Higher tiers, which may do everything that is not "
        "forbidden, start after a person has approved them."
    ),
    AutonomyLevel.ALL: "All tiers start without approval, and may do all that is not forbidden.",
}


def autonomy_level_of(policy: Policy) -> AutonomyLevel | None:
    """Return the level of a policy, or None. Approval of tiers above `max_tier` is ignored."""
    asked = frozenset(tier for tier in policy.approval_tiers if tier <= policy.max_tier)
    if LOWEST_TIER in asked:
        return None
    if policy.max_tier == LOWEST_TIER:
        return AutonomyLevel.LOOK
    if policy.dry_run:
        return None
    return {
        (SAFE, frozenset({SAFE})): AutonomyLevel.SAFE_WITH_APPROVAL,
        (SAFE, frozenset()): AutonomyLevel.SAFE,
        (highest_tier(), frozenset(full_tiers(tier_numbers()))): AutonomyLevel.ALL_WITH_APPROVAL,
        (highest_tier(), frozenset()): AutonomyLevel.ALL,
    }.get((policy.max_tier, asked))


def autonomy_title(policy: Policy) -> str:
    """Return the label of the autonomy level, or a description of the settings."""
    if level := autonomy_level_of(policy):
        return level.label
    words = [f"up to Tier {policy.max_tier}"]
    if policy.dry_run:
        words.append("dry run")
    if policy.approval_tiers:
        words.append(f"approval for Tier {', '.join(map(str, sorted(policy.approval_tiers)))}")
    return f"{BY_HAND}: {', '.join(words)}"
