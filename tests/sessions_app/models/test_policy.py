"""The policy of a cycle: the rule, and the source of its values."""

from __future__ import annotations

import pytest

from sessions_app.models import Watch
from sessions_app.models.autonomy import Policy, objection_to, refusal
from tests.factories import CycleFactory, WatchFactory

FREE = Policy(max_tier=3, dry_run=False)
DRY = Policy(max_tier=3, dry_run=True)


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_every_tier_within_the_limit_may_start(tier):
    assert objection_to(tier, Policy(max_tier=tier, dry_run=False)) == ""


@pytest.mark.parametrize(("tier", "max_tier"), [(2, 1), (3, 1), (3, 2)])
def test_no_tier_above_the_limit_may_start(tier, max_tier):
    policy = Policy(max_tier=max_tier, dry_run=False)

    assert objection_to(tier, policy) == f"the policy allows no tier above {max_tier}"


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_a_dry_run_permits_higher_tiers(tier):
    assert objection_to(tier, DRY) == ""


def test_a_dry_run_stays_within_its_limit():
    assert objection_to(3, Policy(max_tier=2, dry_run=True)) != ""


def test_there_is_nothing_above_the_highest_tier():
    assert objection_to(4, FREE) == "there is no tier above 3"


def test_a_refusal_names_the_limit_and_the_remedy():
    assert refusal(2, Policy(max_tier=1, dry_run=True)) == (
        "Tier 2 is not started: the policy allows no tier above 1. If it should run, change the "
        "watch and run a new cycle."
    )


def test_a_tier_above_the_highest_is_refused():
    assert refusal(4, FREE) == "Tier 4 is not started: there is no tier above 3."


def test_an_allowed_tier_has_no_refusal():
    assert refusal(3, FREE) == ""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("then", "now", "counts"),
    [
        ({"max_tier": 3}, {"max_tier": 1}, Policy(max_tier=1, dry_run=False)),
        ({"max_tier": 1}, {"max_tier": 3}, Policy(max_tier=1, dry_run=False)),
        ({"dry_run": False}, {"dry_run": True}, Policy(max_tier=3, dry_run=True)),
        ({"dry_run": True}, {"dry_run": False}, Policy(max_tier=3, dry_run=True)),
    ],
)
def test_the_stricter_policy_of_cycle_and_watch_counts(then, now, counts):
    cycle = CycleFactory(**then)
    Watch.objects.filter(pk=cycle.watch.pk).update(**now)

    assert cycle.current_policy() == counts


@pytest.mark.django_db
def test_without_a_watch_the_policy_of_the_cycle_counts():
    cycle = CycleFactory(drilled=True, max_tier=2)

    assert cycle.policy == cycle.current_policy() == Policy(max_tier=2, dry_run=False)


@pytest.mark.django_db
def test_a_page_uses_the_loaded_watch(django_assert_num_queries):
    cycle = CycleFactory(watch=WatchFactory(dry_run=True))

    with django_assert_num_queries(0):
        assert cycle.policy.dry_run
