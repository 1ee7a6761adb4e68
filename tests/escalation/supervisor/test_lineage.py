"""The chain above a session: loaded with one query."""

from __future__ import annotations

from decimal import Decimal

import pytest

from escalation.supervisor.successors import lineage_of
from sessions_app.models import Session
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db
Purpose, Status = Session.Purpose, Session.Status


def tier_that_asked(session: Session) -> int | None:
    return lineage_of(session).tier_that_asked


def cut_off(parent: Session | None = None, **facts) -> Session:
    return SessionFactory(parent_session=parent, status=Status.INTERRUPTED, **facts)


def test_the_requesting_tier_is_the_nearest_parent_of_another_tier():
    first = SessionFactory(escalated=True)
    second = SessionFactory(tier=2, parent_session=first)

    assert (tier_that_asked(first), tier_that_asked(second)) == (None, 1)


def test_the_requesting_tier_is_found_behind_requests_for_a_report():
    first = SessionFactory(escalated=True)
    again = SessionFactory(parent_session=first, purpose=Session.Purpose.REPORT)
    second = SessionFactory(tier=2, parent_session=again)
    second_again = SessionFactory(tier=2, parent_session=second, purpose=Session.Purpose.REPORT)

    assert [tier_that_asked(session) for session in (again, second, second_again)] == [None, 1, 1]


def test_the_whole_lineage_needs_one_query(django_assert_num_queries):
    line = [SessionFactory(escalated=True)]
    for tier in (1, 2, 2, 3):
        line.append(SessionFactory(tier=tier, parent_session=line[-1]))
    last = Session.objects.get(pk=line[-1].pk)

    with django_assert_num_queries(1):
        lineage = lineage_of(last)
        path = [run.pk for run in lineage.path]
        parents = [run.parent_session and run.parent_session.pk for run in lineage.path[1:]]

    assert path == [run.pk for run in line]
    assert parents == path[:-1]


def test_consecutive_interruptions_include_the_session():
    third = cut_off(cut_off(cut_off()), purpose=Purpose.RECOVERY)

    assert lineage_of(third).interruptions == 3


def test_a_good_session_between_interruptions_ends_the_count():
    well = SessionFactory(parent_session=cut_off(), purpose=Purpose.RECOVERY)
    again = cut_off(well, purpose=Purpose.REPORT)

    assert lineage_of(again).interruptions == 1


def test_interruptions_of_another_tier_do_not_count():
    second = cut_off(cut_off(), tier=2)

    assert lineage_of(second).interruptions == 1


def test_the_amount_spent_before_is_that_of_the_same_tier():
    first = SessionFactory(cost_usd=Decimal(5))
    second = SessionFactory(tier=2, parent_session=first, cost_usd=Decimal("0.25"))
    third = SessionFactory(
        tier=2, parent_session=second, cost_usd=None, estimated_cost_usd=Decimal("0.5")
    )
    last = SessionFactory(tier=2, parent_session=third, cost_usd=Decimal(9))

    assert lineage_of(last).spent_before_usd == Decimal("0.75")


def test_an_earlier_attempt_of_the_same_session_is_known():
    first = cut_off()
    second = SessionFactory(cycle=first.cycle)

    assert not lineage_of(first).started_again
    assert lineage_of(second).started_again


def test_rate_limits_are_counted_apart_from_interruptions():
    limit = Session.StopCause.RATE_LIMIT
    first = cut_off(stop_cause=limit)
    second = cut_off(cut_off(first), stop_cause=limit)
    third = cut_off(cut_off(second, stop_cause=limit), stop_cause=limit)

    assert lineage_of(third).limits_met == 3
    assert lineage_of(third).interruptions == 2
