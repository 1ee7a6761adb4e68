"""REQ-5: the sum of the tiers is what the CLI reported, or the page says why that is not known."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sessions_app.costs.check import CostCheckResult, check_costs, check_path
from sessions_app.history.chain import Chain
from sessions_app.models import Session


def run(pk: int, own: str | None, reported: str | None, **facts) -> Session:
    """One that resumed its predecessor, unless told otherwise."""
    return Session(
        pk=pk,
        tier=1,
        **{
            "parent_session_id": pk - 1 or None,
            "status": "completed",
            "continued_by": "resume" if pk > 1 else "fresh",
            "cost_basis": "own_share",
            "cost_usd": None if own is None else Decimal(own),
            "reported_cost_usd": None if reported is None else Decimal(reported),
            **facts,
        },
    )


ACCUMULATED = [run(1, "0.03", "0.03"), run(2, "0.47", "0.50"), run(3, "2", "2.50")]
PER_RUN = [
    run(1, "0.03", "0.03", cost_basis="per_run"),
    run(2, "0.47", "0.47", cost_basis="per_run"),
]


@pytest.mark.parametrize("path", [ACCUMULATED, ACCUMULATED[:2], ACCUMULATED[:1], PER_RUN])
def test_req5_the_sum_of_tiers_is_proven_by_what_the_cli_reported(path):
    assert check_path(path).is_proven


def test_req5_the_check_line_names_both_figures_exactly():
    path = [run(1, "0.0312345", "0.0312345"), run(2, "0.47", "0.5012345")]

    assert check_path(path).sentence == (
        "Sum of tiers $0.5012345 = what the CLI reported for the conversation $0.5012345 ✓"
    )


def test_req5_a_difference_is_reported():
    check = check_path([run(1, "0.03", "0.03"), run(2, "0.47", "0.47")])

    assert check.finding == CostCheckResult.DIFFERENT
    assert "$0.50 ≠" in check.sentence
    assert "$0.03 apart" in check.sentence
    assert "✓" not in check.sentence


def test_req5_a_handoff_begins_a_conversation_with_its_own_total():
    path = [run(1, "0.03", "0.03"), run(2, "0.47", "0.47", continued_by="handoff")]

    check = check_path(path)

    assert check.is_proven
    assert "for the 2 conversations $0.50" in check.sentence


def test_req5_a_cost_per_run_may_be_followed_by_a_total():
    path = [run(1, "0.03", "0.03", cost_basis="per_run"), run(2, "0.47", "0.5")]

    assert check_path(path).is_proven


def test_req5_a_run_that_was_refused_adds_nothing():
    path = [run(1, "0.03", "0.03"), run(2, "0", "0"), run(3, "0.47", "0.50")]

    assert check_path(path).is_proven
    assert check_path(path[:2]).is_proven


def test_req5_rounding_of_the_last_place_is_no_difference():
    path = [run(1, "0.0333333333", "0.0333333333"), run(2, "0.0333333333", "0.0666666667")]

    assert check_path(path).is_proven


def test_req5_an_unknown_cost_is_named_and_proves_nothing():
    check = check_path([run(1, "0.03", "0.03"), run(2, None, None, status="failed")])

    assert check.finding == CostCheckResult.UNKNOWN
    assert "without #2, whose cost is unknown" in check.sentence
    assert "✓" not in check.sentence


def test_req5_an_estimate_is_named_and_proves_nothing():
    guessed = run(2, None, None, status="timed_out", estimated_cost_usd=Decimal("0.012"))

    check = check_path([run(1, "0.03", "0.03"), guessed])

    assert check.finding == CostCheckResult.ESTIMATED
    assert "Sum of tiers $0.03, without #2" in check.sentence
    assert "≈ $0.01 is an estimate" in check.sentence


def test_req5_a_running_session_is_not_checked_yet():
    check = check_path([run(1, "0.03", "0.03"), run(2, None, None, status="running")])

    assert check.finding == CostCheckResult.PENDING
    assert "after the end of #2" in check.sentence


def test_req5_sessions_without_reported_totals_prove_nothing():
    check = check_path([run(1, "0.03", None)])

    assert check.finding == CostCheckResult.NOT_REPORTED
    assert "no reported figure" in check.sentence


def test_req5_every_branch_has_its_own_check():
    fork = run(4, "0.1", "0.6", purpose="fork", parent_session_id=2)

    checks = check_costs(Chain(sessions=(*ACCUMULATED, fork)))

    assert [[s.pk for s in check.path] for check in checks] == [[1, 2, 3], [1, 2, 4]]
    assert all(check.is_proven for check in checks)
