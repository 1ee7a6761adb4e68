"""A chain: REQ-4 (complete, in order, from any session) and REQ-5 (sums for display).

That runs are linked and priced so at all is shown where they run:
tests/escalation/run/test_chain.py and, with the real CLI, tests/real_cli.
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db.models import RestrictedError

from sessions_app.history.chain import Chain, chain_of
from tests.factories import SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("position", [0, 1, 2])
def test_req4_three_tier_chain_is_found_in_order_from_any_session(position):
    sessions = three_tier_chain()

    assert chain_of(sessions[position]).sessions == sessions


def test_req4_chain_is_traversable_from_parent_to_child():
    first, second, third = three_tier_chain()

    assert list(first.children.all()) == [second]
    assert list(second.children.all()) == [third]


def test_req4_chain_leaves_out_other_cycles():
    sessions = three_tier_chain()
    SessionFactory()

    assert chain_of(sessions[0]).sessions == sessions


def test_req4_a_retried_tier_stays_with_its_parent():
    first = SessionFactory(escalated=True)
    broken = SessionFactory(tier=2, parent_session=first, failed=True)
    again = SessionFactory(tier=2, parent_session=first)

    assert chain_of(again).sessions == (first, broken, again)


def test_req4_a_parent_cannot_be_deleted_under_its_child():
    first, _second, _third = three_tier_chain()

    with pytest.raises(RestrictedError):
        first.delete()


def test_req4_a_chain_of_any_length_needs_one_query(django_assert_num_queries):
    session = SessionFactory(escalated=True)
    for _ in range(10):
        session = SessionFactory(tier=2, parent_session=session)

    with django_assert_num_queries(1):
        chain = chain_of(session)
        assert [link.cycle.subject for link in chain.sessions]


def test_req5_ending_a_child_does_not_change_its_parent():
    parent = SessionFactory(escalated=True, cost_usd=Decimal("0.03"))
    child = SessionFactory(running=True, tier=2, parent_session=parent, cycle=parent.cycle)

    child.finish("completed", cost_usd=Decimal("0.47"), output_tokens=900)

    parent.refresh_from_db()
    assert (parent.cost_usd, parent.output_tokens) == (Decimal("0.03"), 0)


def test_req5_chain_summary_is_the_total_with_a_breakdown_by_tier():
    chain = chain_of(three_tier_chain()[2])

    assert chain.total_cost_usd == Decimal("2.50")
    assert [(c.tier, c.cost_usd, c.share) for c in chain.costs_by_tier] == [
        (1, Decimal("0.03"), Decimal("0.012")),
        (2, Decimal("0.47"), Decimal("0.188")),
        (3, Decimal("2.00"), Decimal("0.8")),
    ]


def test_req5_runs_of_one_tier_are_added_up_for_display():
    first = SessionFactory(cost_usd=Decimal("0.03"))
    SessionFactory(parent_session=first, cost_usd=Decimal("0.01"), purpose="report")

    (tier,) = chain_of(first).costs_by_tier

    assert (tier.cost_usd, tier.runs) == (Decimal("0.04"), 2)


def test_req5_a_missing_figure_makes_the_total_incomplete():
    first = SessionFactory(escalated=True)
    SessionFactory(tier=2, parent_session=first, failed=True)

    assert not chain_of(first).cost_is_complete


def test_a_chain_without_cost_has_no_shares():
    chain = Chain(sessions=(SessionFactory(cost_usd=None),))

    assert chain.costs_by_tier[0].share == 0
