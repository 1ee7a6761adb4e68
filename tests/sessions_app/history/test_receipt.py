"""The receipt of an escalation, read from the record."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sessions_app.history.resume import FACTS as LOOKED_AT
from sessions_app.history.resume import (
    NOT_ASKED,
    OBJECTED,
    PASSED,
    Difference,
    Guard,
    flag,
    guard_lines,
    receipt_of,
)
from tests.factories import SessionFactory, UserFactory

pytestmark = pytest.mark.django_db

FACTS = {
    "parent": {"session_id": "abc", "context_tokens": 50_000, "age_seconds": 7, "kept": True},
    "run": {"context_window": 200_000, "can_resume": True, "cli_version": "2.1"},
    "limits": {"context_threshold": "0.80", "max_age_seconds": 86_400},
}


def a_chain(**fields):
    parent = SessionFactory(
        escalated=True,
        context_tokens=50_000,
        argv=["claude", "--tools", "Bash,Read,WebFetch"],
        sandbox={"grants": ["docker", "network"]},
        report={"summary": "down", "escalation": {"needed": True, "reason": "web needs a restart"}},
    )
    child = SessionFactory(
        parent_session=parent,
        tier=2,
        argv=["claude", "--max-budget-usd", "5", "--tools", "Bash,Read,Write"],
        sandbox={"grants": ["docker", "write:/srv"]},
        continuation_facts=FACTS,
        cost_usd=Decimal("0.47"),
        **fields,
    )
    return parent, child


def test_tools_and_grants_are_compared_with_the_tier_before():
    parent, child = a_chain()

    receipt = receipt_of(child, parent)

    assert receipt is not None
    assert receipt.tools == Difference(gained=("Write",), lost=("WebFetch",))
    assert receipt.grants == Difference(gained=("write:/srv",), lost=("network",))
    assert (receipt.model_before, receipt.model_now) == ("haiku", "sonnet")


def test_the_requester_and_the_reason_are_shown():
    parent, child = a_chain()
    receipt = receipt_of(child, parent)

    assert receipt is not None
    assert (receipt.asked_by, receipt.why) == ("Tier 1", "web needs a restart")


def test_a_person_who_requested_it_is_named():
    parent, child = a_chain(requested_by=UserFactory(username="ada"), request="Now, please.")
    receipt = receipt_of(child, parent)

    assert receipt is not None
    assert (receipt.asked_by, receipt.why) == ("ada", "Now, please.")


def test_the_use_of_the_context_and_the_rest_of_the_budget_are_shown():
    parent, child = a_chain()
    receipt = receipt_of(child, parent)

    assert receipt is not None
    assert receipt.context_share == Decimal("0.25")
    assert (receipt.budget_usd, receipt.left_usd) == (Decimal("5"), Decimal("4.53"))


def test_the_first_session_of_a_chain_has_no_receipt():
    assert receipt_of(SessionFactory(), None) is None


@pytest.mark.parametrize("odd", [None, [], "x", 7, {"--tools": 1}, ["--tools"]])
def test_a_record_of_any_shape_is_read(odd):
    parent, child = a_chain()
    child.argv = child.sandbox = child.continuation_facts = parent.argv = odd

    receipt = receipt_of(child, parent)

    assert receipt is not None
    assert (receipt.tools, receipt.grants, receipt.guards) == (None, None, ())


def test_a_flag_without_a_value_is_ignored():
    assert flag(["claude", "--tools"], "--tools") is None
    assert flag(["claude", "--tools", "Bash"], "--tools") == "Bash"


def test_every_guard_has_a_line_in_its_order():
    assert [line.name for line in guard_lines(FACTS, "")] == [guard.value for guard in Guard]
    assert set(LOOKED_AT) == set(Guard)


def test_the_guards_of_a_resumed_run_have_all_passed():
    lines = guard_lines(FACTS, "")

    assert {line.verdict for line in lines} == {PASSED}
    facts = {line.name: line.fact for line in lines}
    assert facts["context_full"] == "50000 of 200000 tokens (25.0%), at most 80%"
    assert facts["expired"] == "7.0 s of at most 24 h 00 min"


def test_guards_after_the_objection_were_not_checked():
    verdicts = {line.name: line.verdict for line in guard_lines(FACTS, "context_full")}

    assert verdicts["in_use"] == PASSED
    assert verdicts["context_full"] == OBJECTED
    assert verdicts["transcript_gone"] == NOT_ASKED
