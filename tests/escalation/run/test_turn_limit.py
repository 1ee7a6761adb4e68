"""A tier at its turn limit continues its conversation, a few times and within its budget."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from escalation.run.prepare import SMALLEST_BUDGET, budget_of
from escalation.supervisor.successors import lineage_of
from escalation.tiers import get_tier
from sessions_app.models import Cycle, Session
from tests.escalation.rows import HEALTHY, notes_of
from tests.escalation.runs import child_of, escalated, run
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db
Purpose, Status = Session.Purpose, Session.Status


def at_limit(cost: float = 0.25) -> str:
    return (
        "init(); say(); result(None, subtype='error_max_turns', is_error=True,"
        f" total_cost_usd={cost}); sys.exit(1)"
    )


@pytest.fixture
def budget_of_a_dollar(settings) -> None:
    tier = replace(settings.CLAUDEOPS_TIERS[1], max_budget_usd=Decimal(1))
    settings.CLAUDEOPS_TIERS = {**settings.CLAUDEOPS_TIERS, 1: tier}


def test_continuation_resumes_with_its_own_prompt(fake_cli, session):
    fake_cli.then(at_limit()).reports(HEALTHY)
    first = run(session)

    second = run(child_of(first))

    assert (second.tier, second.purpose) == (1, Purpose.CONTINUATION)
    assert fake_cli.calls[1].flag("--resume") == first.session_id
    assert "stopped at its turn limit" in fake_cli.calls[1].stdin
    assert second.cycle.outcome == Cycle.Outcome.HEALTHY


def test_every_continuation_is_a_session_with_its_own_cost(fake_cli, session):
    fake_cli.then(at_limit(0.25)).then(at_limit(0.5)).reports(HEALTHY)
    first = run(session)
    second = run(child_of(first))
    third = run(child_of(second))

    assert [ran.cost_usd for ran in (first, second, third)] == [
        Decimal("0.25"),
        Decimal("0.5"),
        Decimal("0.018"),
    ]
    assert [ran.status for ran in (first, second, third)] == ["failed", "failed", "completed"]
    assert "continues in the same conversation" in notes_of(first, "decision")[0]


@pytest.mark.parametrize("allowed", [0, 1, 2, 3])
def test_after_the_last_continuation_a_person_is_needed(fake_cli, session, settings, allowed):
    settings.CLAUDEOPS_MAX_CONTINUATIONS = allowed
    fake_cli.then(at_limit(0.01))

    last = run(session)
    while last.children.exists():
        last = run(child_of(last))

    assert len(fake_cli.calls) == 1 + allowed
    assert last.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "CLAUDEOPS_TIER1_MAX_TURNS" in last.cycle.outcome_reason


def test_continuation_gets_the_rest_of_the_budget(fake_cli, session, budget_of_a_dollar):
    fake_cli.then(at_limit(0.25)).then(at_limit(0.5)).reports(HEALTHY)
    second = child_of(run(session))
    third = child_of(run(second))
    run(third)

    given = [Decimal(call.flag("--max-budget-usd")) for call in fake_cli.calls]
    assert given == [Decimal(1), Decimal("0.75"), Decimal("0.25")]


@pytest.mark.parametrize("cost", [0.99, 1.0, 1.07])
def test_a_tier_without_budget_does_not_continue(fake_cli, session, budget_of_a_dollar, cost):
    fake_cli.then(at_limit(cost))

    ran = run(session)

    assert not ran.children.exists()
    assert ran.cycle.outcome == Cycle.Outcome.NEEDS_PERSON


def test_a_tier_without_a_session_id_does_not_continue(fake_cli, session):
    fake_cli.then(at_limit().replace("init()", "init(session_id=None)"))

    ran = run(session)

    assert not ran.children.exists()
    assert ran.cycle.outcome == Cycle.Outcome.NEEDS_PERSON


def test_a_higher_tier_has_its_own_continuations_and_budget(fake_cli, session, settings):
    settings.CLAUDEOPS_MAX_CONTINUATIONS = 1
    fake_cli.then(at_limit(0.5))
    goes_on = child_of(run(session))
    second = escalated(fake_cli, goes_on)
    fake_cli.then(at_limit(0.5)).reports(HEALTHY)

    continued = run(child_of(run(second)))

    assert (continued.tier, continued.purpose) == (2, Purpose.CONTINUATION)
    assert Decimal(fake_cli.calls[2].flag("--max-budget-usd")) == get_tier(2).max_budget_usd
    assert continued.cycle.outcome == Cycle.Outcome.HEALTHY


def test_a_continuation_that_escalates_asks_for_the_next_tier(fake_cli, session):
    fake_cli.then(at_limit())
    goes_on = child_of(run(session))

    assert escalated(fake_cli, goes_on).tier == 2


def test_the_remaining_budget_is_never_zero():
    spent = SessionFactory(cost_usd=Decimal(99))
    session = SessionFactory(parent_session=spent, purpose=Purpose.CONTINUATION)

    assert budget_of(lineage_of(session), get_tier(1)) == SMALLEST_BUDGET


def test_estimated_cost_of_a_killed_session_counts_in_the_budget():
    first = SessionFactory(cost_usd=None, estimated_cost_usd=Decimal("0.4"))
    second = SessionFactory(parent_session=first, purpose=Purpose.RECOVERY, cost_usd=None)

    left = budget_of(lineage_of(second), get_tier(1))
    assert left == get_tier(1).max_budget_usd - Decimal("0.4")


@pytest.mark.parametrize("purpose", [Purpose.FOLLOW_UP, Purpose.FORK])
def test_manual_session_has_its_own_budget(purpose):
    """A tier that has spent its money must still be able to answer a question."""
    spent = SessionFactory(cost_usd=get_tier(1).max_budget_usd)
    asked = SessionFactory(parent_session=spent, purpose=purpose, cost_usd=None)

    assert budget_of(lineage_of(asked), get_tier(1)) == get_tier(1).max_budget_usd
