from __future__ import annotations

import pytest

from escalation.continuation import Fresh, Resume, continuation_from
from tests.escalation.rows import CONVERSATION


def test_the_first_run_of_a_cycle_begins_afresh():
    assert isinstance(continuation_from(None, None), Fresh)


@pytest.mark.parametrize("tier", [1, 2])
def test_a_run_with_a_parent_resumes_the_parents_conversation(tier):
    continuation = continuation_from(CONVERSATION, tier)

    assert isinstance(continuation, Resume)
    assert continuation.session_id == CONVERSATION


def test_both_ways_say_why():
    assert continuation_from(None, None).why == "first run of the cycle"
    assert continuation_from(CONVERSATION, 2).why == "continues the conversation of Tier 2"
