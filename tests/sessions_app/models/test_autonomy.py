"""Five levels of autonomy, as another way to write three settings."""

from __future__ import annotations

from itertools import chain, combinations, product

import pytest

from sessions_app.models import Watch
from sessions_app.models.autonomy import (
    AutonomyLevel,
    Policy,
    autonomy_level_of,
    autonomy_title,
    objection_to,
)
from tests.tables import each_row

APPROVALS = [frozenset(some) for some in chain(*(combinations((1, 2, 3), n) for n in range(4)))]
EVERY_POLICY = [
    Policy(max_tier=tier, dry_run=dry, approval_tiers=asked)
    for tier, dry, asked in product((1, 2, 3), (False, True), APPROVALS)
]


@each_row("step", AutonomyLevel)
def test_the_settings_of_a_level_are_read_as_that_level(step):
    assert autonomy_level_of(step.policy) == step


@each_row("step", AutonomyLevel)
def test_setting_a_level_of_a_watch_stores_it(step):
    watch = Watch(max_tier=3, dry_run=False, approval="1")

    watch.set_autonomy_level(step)

    assert (watch.autonomy_level, watch.autonomy_title) == (step, step.label)


def reach(policy: Policy) -> list[tuple[bool, bool]]:
    """For each tier: may it act, and does it act without a person?"""
    acts = [not objection_to(tier, policy) and not policy.dry_run for tier in (2, 3)]
    alone = [tier not in policy.approval_tiers for tier in (2, 3)]
    return [(may, may and by_itself) for may, by_itself in zip(acts, alone, strict=True)]


@pytest.mark.parametrize(
    ("lower", "higher"), list(zip(AutonomyLevel, list(AutonomyLevel)[1:], strict=False))
)
def test_each_level_permits_more_than_the_one_before(lower, higher):
    below, above = reach(lower.policy), reach(higher.policy)

    assert below != above
    assert all(now >= before for before, now in zip(below, above, strict=True))
    assert higher.rank == lower.rank + 1


def test_policies_of_the_same_level_have_the_same_effect():
    for policy in EVERY_POLICY:
        if step := autonomy_level_of(policy):
            assert reach(policy) == reach(step.policy)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Policy(max_tier=3, dry_run=True), "by hand: up to Tier 3, dry run"),
        (
            Policy(max_tier=3, dry_run=False, approval_tiers=frozenset({2, 3})),
            "by hand: up to Tier 3, approval for Tier 2, 3",
        ),
        (
            Policy(max_tier=1, dry_run=False, approval_tiers=frozenset({1})),
            "by hand: up to Tier 1, approval for Tier 1",
        ),
    ],
)
def test_settings_without_a_level_are_described(policy, words):
    assert autonomy_level_of(policy) is None
    assert autonomy_title(policy) == words


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_watch_limited_to_tier_1_has_the_level_look(dry_run):
    assert autonomy_level_of(Policy(max_tier=1, dry_run=dry_run)) == AutonomyLevel.LOOK
