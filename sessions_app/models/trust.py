"""How far a watch is trusted, in five steps from looking to everything. Pure.

A step is another way to write three settings of a watch: how high it goes, whether it changes
anything, and which tiers wait for a person. Settings that are no step are "by hand".
"""

from __future__ import annotations

from enum import StrEnum

from sessions_app.models.policy import LOWEST_TIER, Policy

SAFE_TIER, FULL_TIER = 2, 3


class Step(StrEnum):
    """In order: each may do what the one before may, and more."""

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
        return POLICIES[self]

    @property
    def rank(self) -> int:
        return list(Step).index(self)


BY_HAND = "by hand"
LABELS = {
    Step.LOOK: "look",
    Step.SAFE_WITH_APPROVAL: "safe remedies with approval",
    Step.SAFE: "safe remedies",
    Step.ALL_WITH_APPROVAL: "everything with approval",
    Step.ALL: "everything",
}
MEANINGS = {
    Step.LOOK: "Tier 1 looks and reports. Nothing is changed, and no higher tier starts.",
    Step.SAFE_WITH_APPROVAL: "Tier 2 may restart things and the like, once a person has approved.",
    Step.SAFE: "Tier 2 restarts things and the like by itself.",
    Step.ALL_WITH_APPROVAL: "Tier 2 by itself; Tier 3, which may do everything that is not "
    "forbidden, once a person has approved.",
    Step.ALL: "Tier 2 and Tier 3 by themselves, whatever is not forbidden.",
}
POLICIES = {
    Step.LOOK: Policy(max_tier=1, dry_run=True, approval_tiers=frozenset({3})),
    Step.SAFE_WITH_APPROVAL: Policy(max_tier=2, dry_run=False, approval_tiers=frozenset({2, 3})),
    Step.SAFE: Policy(max_tier=2, dry_run=False, approval_tiers=frozenset({3})),
    Step.ALL_WITH_APPROVAL: Policy(max_tier=3, dry_run=False, approval_tiers=frozenset({3})),
    Step.ALL: Policy(max_tier=3, dry_run=False),
}


def step_of(policy: Policy) -> Step | None:
    """None where the settings are no step. What no tier in reach asks for makes no difference."""
    asked = frozenset(tier for tier in policy.approval_tiers if tier <= policy.max_tier)
    if LOWEST_TIER in asked:
        return None
    if policy.max_tier == LOWEST_TIER:
        return Step.LOOK
    if policy.dry_run:
        return None
    return {
        (SAFE_TIER, frozenset({SAFE_TIER})): Step.SAFE_WITH_APPROVAL,
        (SAFE_TIER, frozenset()): Step.SAFE,
        (FULL_TIER, frozenset({FULL_TIER})): Step.ALL_WITH_APPROVAL,
        (FULL_TIER, frozenset()): Step.ALL,
    }.get((policy.max_tier, asked))


def trust_title(policy: Policy) -> str:
    """In words: the step, or what the settings say where they are none."""
    if step := step_of(policy):
        return step.label
    words = [f"up to Tier {policy.max_tier}"]
    if policy.dry_run:
        words.append("dry run")
    if policy.approval_tiers:
        words.append(f"approval for Tier {', '.join(map(str, sorted(policy.approval_tiers)))}")
    return f"{BY_HAND}: {', '.join(words)}"
