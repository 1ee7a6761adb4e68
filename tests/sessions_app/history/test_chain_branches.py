"""REQ-4: sessions that a person adds are branches of one tree."""

from __future__ import annotations

import pytest

from sessions_app.history.chain import chain_of
from tests.factories import SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db


def lines(session) -> list[tuple[int, list[int], str]]:
    return [
        (branch.depth, [s.pk for s in branch.sessions], branch.label)
        for branch in chain_of(session).branches
    ]


def test_req4_a_chain_without_branches_is_one_line():
    sessions = three_tier_chain()

    assert lines(sessions[1]) == [(0, [s.pk for s in sessions], "tier")]


@pytest.mark.parametrize(
    ("purpose", "label"),
    [("follow_up", "follow-up question"), ("fork", "another approach"), ("retry", "retry")],
)
def test_req4_a_session_added_by_a_person_is_a_branch_named_by_its_purpose(purpose, label):
    first, second, third = three_tier_chain()
    added = SessionFactory(tier=2, parent_session=second, purpose=purpose)

    main, branch = lines(first)

    assert main[:2] == (0, [first.pk, second.pk, third.pk])
    assert branch == (1, [added.pk], label)


@pytest.mark.parametrize("purpose", ["report", "continuation", "findings", "recovery"])
def test_req4_a_session_added_by_the_supervisor_stays_in_the_chain(purpose):
    first = SessionFactory()
    second = SessionFactory(parent_session=first, purpose=purpose)

    assert [line[1] for line in lines(first)] == [[first.pk, second.pk]]


def test_req4_a_branch_has_the_session_where_it_starts():
    first, second, _third = three_tier_chain()
    SessionFactory(tier=2, parent_session=second, purpose="fork")

    assert chain_of(first).branches[1].came_from == second


def test_req4_a_follow_up_of_a_follow_up_stays_in_its_branch():
    first = SessionFactory()
    question = SessionFactory(parent_session=first, purpose="follow_up")
    second = SessionFactory(parent_session=question, purpose="follow_up")

    assert [line[1] for line in lines(first)] == [[first.pk], [question.pk, second.pk]]


def test_req4_a_branch_of_a_branch_is_nested():
    first = SessionFactory()
    fork = SessionFactory(parent_session=first, purpose="fork")
    other = SessionFactory(parent_session=first, purpose="follow_up")
    deeper = SessionFactory(parent_session=fork, purpose="fork")

    assert [line[:2] for line in lines(first)] == [
        (0, [first.pk]),
        (1, [fork.pk]),
        (2, [deeper.pk]),
        (1, [other.pk]),
    ]


def test_req4_an_escalation_within_a_branch_stays_in_it():
    first = SessionFactory(failed=True)
    again = SessionFactory(parent_session=first, purpose="retry")
    above = SessionFactory(parent_session=again, tier=2)

    assert [line[1] for line in lines(above)] == [[first.pk], [again.pk, above.pk]]


def test_req4_of_two_sessions_of_a_tier_the_later_one_continues_the_chain():
    first = SessionFactory(escalated=True)
    refused = SessionFactory(parent_session=first, tier=2, failed=True)
    again = SessionFactory(parent_session=first, tier=2)

    assert [line[1] for line in lines(first)] == [[first.pk, again.pk], [refused.pk]]


def test_req4_a_retried_first_session_belongs_to_the_chain():
    first = SessionFactory(failed=True)
    again = SessionFactory(cycle=first.cycle, purpose="retry")

    assert [line[:2] for line in lines(again)] == [(0, [first.pk]), (1, [again.pk])]


def test_req4_the_leaves_and_the_paths_to_them_are_known():
    first, second, third = three_tier_chain()
    fork = SessionFactory(tier=2, parent_session=second, purpose="fork")
    chain = chain_of(first)

    assert chain.leaves == (third, fork)
    assert chain.path_to(fork) == (first, second, fork)


def test_req4_a_tree_needs_one_query(django_assert_num_queries):
    first = three_tier_chain()[0]
    for _ in range(5):
        SessionFactory(parent_session=first, purpose="follow_up")

    with django_assert_num_queries(1):
        assert len(chain_of(first).branches) == 6
