"""Resume against handoff: the figures behind the comparison."""

from __future__ import annotations

from decimal import Decimal

import pytest

from escalation.web import resume_comparison
from escalation.web.resume_comparison import Way, compare_ways
from sessions_app.models import Session
from tests.factories import SessionFactory
from tests.sessions_app.tool_events import store_commands

pytestmark = pytest.mark.django_db


def step(continued_by: str, *commands: str, **facts) -> Session:
    """Tier 1 ran two commands with 40,000 tokens of context; Tier 2 took over."""
    first = SessionFactory(escalated=True, context_tokens=40_000)
    store_commands(first, "df -h", "uptime")
    second = SessionFactory(tier=2, parent_session=first, continued_by=continued_by, **facts)
    store_commands(second, *commands)
    return second


def ways() -> tuple[Way, ...]:
    return compare_ways(Session.objects.real()).ways


def test_resumed_steps_and_handoffs_are_counted_apart():
    step("resume")
    step("resume")
    step("handoff")
    step("fresh")

    assert [(way.label, len(way.steps)) for way in ways()] == [("resume", 2), ("handoff", 1)]


def test_a_resumed_step_carries_its_parents_context():
    step("resume")

    assert ways()[0].context_carried == 40_000


def test_a_handoff_carries_only_its_own_text():
    step("handoff", handoff={"a": "b"})

    assert ways()[1].context_carried == 0
    assert ways()[1].handoff_characters == len('{"a": "b"}')


def test_repeated_calls_are_counted_over_all_steps():
    step("resume", "df -h", "reboot")
    step("resume", "rm x", "reboot")

    way = ways()[0]

    assert (way.repeated, way.calls, way.repeated_share) == (1, 4, Decimal("0.25"))


def test_the_cost_of_repeated_work_is_added_up():
    step("handoff", "df -h", "reboot", cost_usd=Decimal("0.40"))
    step("handoff", "df -h", cost_usd=Decimal("0.10"))

    assert ways()[1].repeated_cost_usd == Decimal("0.30")


def test_an_average_excludes_unknown_values_and_counts_them():
    step("resume", cost_usd=Decimal("0.40"))
    step("resume", cost_usd=None)

    assert (ways()[0].cost_usd, ways()[0].without_cost) == (Decimal("0.40"), 1)


def test_a_step_without_stored_events_is_not_measured():
    step("resume", turns=5)

    assert (len(ways()[0].steps), len(ways()[0].measured)) == (1, 0)


@pytest.mark.parametrize("purpose", ["follow_up", "report", "continuation", "fork"])
def test_sessions_that_are_not_escalations_are_not_compared(purpose):
    step("resume", purpose=purpose)

    assert not compare_ways(Session.objects.real()).has_steps


def test_a_step_that_is_still_running_is_not_compared():
    step("resume", status="running", finished_at=None)

    assert not compare_ways(Session.objects.real()).has_steps


def test_only_the_latest_steps_are_read(monkeypatch):
    monkeypatch.setattr(resume_comparison, "STEPS_MEASURED", 2)
    steps = [step("resume") for _ in range(3)]

    comparison = compare_ways(Session.objects.real())

    assert comparison.is_cut
    assert {s.session.pk for s in comparison.ways[0].steps} == {s.pk for s in steps[1:]}


def test_three_queries_are_enough_for_any_number_of_steps(django_assert_num_queries):
    for _ in range(5):
        step("resume", "df -h")
        step("handoff", "df -h", handoff={"a": 1})

    with django_assert_num_queries(3):
        comparison = compare_ways(Session.objects.real())
        figures = [(w.repeated, w.context_carried, w.handoff_characters) for w in comparison.ways]

    assert len(figures) == 2
