"""After an interrupted session: when it continues by itself, and when it needs a person."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escalation.supervisor.decision import (
    AskPerson,
    ContinueAfterInterruption,
    Interruption,
    LimitMet,
    StartAgain,
    after_interruption,
    after_limit,
)
from tests.tables import each_row

LIMIT = 2


def cut_off(**facts) -> Interruption:
    """A Tier 1 run that was cut off for the first time, while the model was thinking."""
    usual = {
        "tier": 1,
        "tool_was_running": False,
        "can_be_continued": True,
        "answered": True,
        "interruptions": 1,
    }
    return Interruption(**{**usual, **facts})


GOES_ON = [
    pytest.param(cut_off(), id="Tier 1, thinking"),
    pytest.param(cut_off(tool_was_running=True), id="Tier 1, looking"),
    pytest.param(cut_off(tier=2), id="Tier 2, thinking"),
    pytest.param(cut_off(tier=3), id="Tier 3, thinking"),
    pytest.param(cut_off(interruptions=LIMIT), id="for the last time"),
]

ASKS = [
    pytest.param(cut_off(tier=2, tool_was_running=True), "half done", id="Tier 2, mending"),
    pytest.param(cut_off(tier=3, tool_was_running=True), "half done", id="Tier 3, mending"),
    pytest.param(cut_off(interruptions=LIMIT + 1), "3 times", id="too often"),
    pytest.param(cut_off(tier=3, interruptions=LIMIT + 1), "3 times", id="Tier 3, too often"),
    pytest.param(cut_off(is_question=True), "ask it again", id="a question"),
    pytest.param(
        cut_off(is_question=True, tier=3, tool_was_running=True, interruptions=9),
        "ask it again",
        id="a question, whatever else",
    ),
    pytest.param(
        cut_off(tier=2, tool_was_running=True, interruptions=9, can_be_continued=False),
        "half done",
        id="the gravest reason is the one that is told",
    ),
]


@each_row("cut", GOES_ON)
def test_an_interruption_without_unfinished_work_continues(cut):
    decision = after_interruption(cut, limit=LIMIT)

    assert isinstance(decision, ContinueAfterInterruption)
    assert "checks the state first" in decision.reason


@each_row(("cut", "words"), ASKS)
def test_an_interruption_that_cannot_continue_needs_a_person(cut, words):
    decision = after_interruption(cut, limit=LIMIT)

    assert isinstance(decision, AskPerson)
    assert words in decision.reason


def test_the_reason_names_the_tier_with_unfinished_work():
    decision = after_interruption(cut_off(tier=3, tool_was_running=True), limit=LIMIT)

    assert "Tier 3" in decision.reason


def test_a_limit_of_zero_continues_nothing():
    assert isinstance(after_interruption(cut_off(), limit=0), AskPerson)


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_a_session_with_output_but_without_a_conversation_is_not_continued(tier):
    cut = cut_off(tier=tier, can_be_continued=False)

    assert isinstance(after_interruption(cut, limit=LIMIT), AskPerson)


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_a_session_interrupted_before_any_output_is_started_again(tier):
    cut = cut_off(tier=tier, can_be_continued=False, answered=False)

    assert isinstance(after_interruption(cut, limit=LIMIT), StartAgain)


def test_a_session_is_started_again_only_once():
    cut = cut_off(can_be_continued=False, answered=False, started_again=True)

    decision = after_interruption(cut, limit=LIMIT)

    assert isinstance(decision, AskPerson)
    assert "twice" in decision.reason


anything = st.builds(
    Interruption,
    tier=st.integers(1, 3),
    tool_was_running=st.booleans(),
    can_be_continued=st.booleans(),
    answered=st.booleans(),
    started_again=st.booleans(),
    interruptions=st.integers(1, 30),
    is_question=st.booleans(),
)
limits = st.integers(0, 20)
quietly = settings(database=None, deadline=None)


@given(anything, limits)
@quietly
def test_every_decision_has_a_reason(cut, limit):
    assert after_interruption(cut, limit=limit).reason.strip()


@given(anything, limits)
@quietly
def test_unfinished_work_never_continues_by_itself(cut, limit):
    if cut.tier >= 2 and cut.tool_was_running:
        assert isinstance(after_interruption(cut, limit=limit), AskPerson)


@given(anything, limits)
@quietly
def test_above_the_limit_nothing_continues(cut, limit):
    if cut.interruptions > limit:
        assert isinstance(after_interruption(cut, limit=limit), AskPerson)


@given(anything, limits)
@quietly
def test_a_follow_up_is_never_repeated_by_itself(cut, limit):
    if cut.is_question:
        assert isinstance(after_interruption(cut, limit=limit), AskPerson)


@given(anything, limits)
@quietly
def test_the_same_facts_give_the_same_answer(cut, limit):
    assert after_interruption(cut, limit=limit) == after_interruption(cut, limit=limit)


def limit_met(**facts) -> LimitMet:
    """A run that had said something and met the account's limit for the first time."""
    usual = {"tier": 2, "until": "8 pm", "can_be_continued": True, "answered": True, "times": 1}
    return LimitMet(**{**usual, **facts})


@each_row(
    ("met", "follows"),
    [
        (limit_met(), ContinueAfterInterruption),
        (limit_met(times=3), ContinueAfterInterruption),
        (limit_met(times=4), AskPerson),
        (limit_met(answered=False), StartAgain),
        (limit_met(answered=False, times=4), AskPerson),
        (limit_met(can_be_continued=False), StartAgain),
        (limit_met(is_question=True), StartAgain),
        (limit_met(is_question=True, times=4), AskPerson),
    ],
)
def test_decisions_after_a_rate_limit(met, follows):
    assert isinstance(after_limit(met, most=3), follows)


def test_the_reason_of_a_waiting_session_names_the_time():
    assert "until 8 pm" in after_limit(limit_met(), most=3).reason
    assert "until 8 pm" in after_limit(limit_met(answered=False), most=3).reason
