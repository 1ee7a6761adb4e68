"""The continuation decision: every guard alone, every pair of guards, and none at all."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from itertools import combinations

import pytest

from sessions_app.history.resume import (
    CHEAP_RULES,
    RULES,
    Fresh,
    Guard,
    Handoff,
    NextRun,
    Resume,
    TranscriptLocation,
    cheap_objection,
    continuation_from,
)
from tests.escalation.continuation_cases import LIMITS, OBJECTIONS, PARENT, RUN, facts_for
from tests.escalation.rows import CONVERSATION
from tests.tables import each_row

# One file cannot be both unreadable and gone.
PAIRS = [
    pair
    for pair in combinations(Guard, 2)
    if pair != (Guard.TRANSCRIPT_UNREADABLE, Guard.TRANSCRIPT_GONE)
]


def test_the_first_session_of_a_cycle_begins_a_conversation():
    assert continuation_from(None, RUN, LIMITS) == Fresh(why="first run of the cycle")


def test_a_first_session_begins_a_conversation_on_any_host():
    run = replace(RUN, can_resume=False, force_fresh=True)

    assert isinstance(continuation_from(None, run, LIMITS), Fresh)


def test_without_an_objection_the_parents_conversation_is_resumed():
    continuation = continuation_from(PARENT, RUN, LIMITS)

    assert isinstance(continuation, Resume)
    assert continuation.session_id == CONVERSATION


@pytest.mark.parametrize("tier", [1, 2])
def test_a_resume_has_the_tier_and_the_use_of_the_context_as_reason(tier):
    why = continuation_from(replace(PARENT, tier=tier), RUN, LIMITS).why

    assert f"continues the conversation of Tier {tier}" in why
    assert "7.5% of the context in use, under the limit of 80%" in why


def test_every_guard_has_a_case_and_the_order_of_the_enumeration():
    order = [rule.guard for rule in RULES]

    assert order == list(Guard)
    assert set(OBJECTIONS) == set(Guard)


@each_row("guard", Guard)
def test_one_guard_alone_gives_a_handoff_with_guard_and_fact(guard):
    continuation = continuation_from(*facts_for(guard), LIMITS)

    assert isinstance(continuation, Handoff)
    assert continuation.guard == guard
    assert OBJECTIONS[guard].says in continuation.why


@each_row(("first", "second"), PAIRS)
def test_of_two_guards_the_earlier_one_gives_the_reason(first, second):
    parent, run = facts_for(first, second)
    both = {rule.guard for rule in RULES if rule.objection(parent, run, LIMITS)}

    continuation = continuation_from(parent, run, LIMITS)

    assert {first, second} <= both
    assert isinstance(continuation, Handoff)
    assert continuation.guard == first
    assert OBJECTIONS[first].says in continuation.why


def test_all_guards_at_once_are_still_one_handoff():
    continuation = continuation_from(*facts_for(*Guard), LIMITS)

    assert continuation == Handoff(
        guard=Guard.CLI_CANNOT_RESUME, why=f"this CLI ({RUN.cli_version}) cannot resume"
    )


@each_row("guard", [rule.guard for rule in CHEAP_RULES])
def test_a_cheap_objection_is_known_before_the_disk_is_read(guard):
    parent, run = facts_for(guard)

    assert cheap_objection(replace(parent, transcript=TranscriptLocation.NOT_LOOKED), run, LIMITS)


@pytest.mark.parametrize("guard", [rule.guard for rule in RULES if rule.reads_disk])
def test_an_objection_from_the_disk_is_not_known_before_it_is_read(guard):
    parent, run = facts_for(guard)

    assert not cheap_objection(
        replace(parent, transcript=TranscriptLocation.NOT_LOOKED), run, LIMITS
    )


def test_another_binary_of_the_same_version_is_another_runtime():
    continuation = continuation_from(replace(PARENT, same_binary=False), RUN, LIMITS)

    assert continuation == Handoff(
        guard=Guard.OTHER_RUNTIME, why="the earlier run used another binary of the CLI"
    )


def test_a_changed_model_is_no_objection():
    assert not [field.name for field in fields(NextRun) if "model" in field.name]
    assert isinstance(continuation_from(PARENT, replace(RUN, tier=3), LIMITS), Resume)


@pytest.mark.parametrize("age", [-3600, 0, 86_400])
def test_a_clock_that_was_set_back_does_not_expire_a_conversation(age):
    assert isinstance(continuation_from(replace(PARENT, age_seconds=age), RUN, LIMITS), Resume)


def test_expired_conversation_stays_expired():
    parent = replace(PARENT, age_seconds=-3600, expired=True)

    continuation = continuation_from(parent, RUN, LIMITS)

    assert isinstance(continuation, Handoff)
    assert continuation.guard == Guard.EXPIRED


@pytest.mark.parametrize("transcript", [TranscriptLocation.ON_DISK, TranscriptLocation.ARCHIVED])
@pytest.mark.parametrize("same_host", [True, False])
def test_an_available_transcript_is_resumed_on_any_host(transcript, same_host):
    parent = replace(PARENT, same_host=same_host, transcript=transcript)

    assert isinstance(continuation_from(parent, RUN, LIMITS), Resume)


def test_req8_context_utilization_below_threshold_proceeds_with_resume():
    parent = replace(PARENT, context_tokens=15_000)

    assert isinstance(continuation_from(parent, RUN, LIMITS), Resume)


def test_req8_context_utilization_above_threshold_triggers_fallback():
    continuation = continuation_from(replace(PARENT, context_tokens=170_000), RUN, LIMITS)

    assert isinstance(continuation, Handoff)
    assert continuation.guard == Guard.CONTEXT_FULL
    assert "context window pressure" in continuation.why
    assert "over the limit of 80%" in continuation.why


@each_row(
    ("threshold", "tokens", "kind"),
    [
        ("0.70", 140_000, Resume),
        ("0.70", 140_001, Handoff),
        ("0.80", 140_001, Resume),
        ("0.80", 160_000, Resume),
        ("0.80", 160_001, Handoff),
        ("1", 200_000, Resume),
        ("1", 200_001, Handoff),
    ],
)
def test_req8_configurable_context_threshold(threshold, tokens, kind):
    limits = replace(LIMITS, context_threshold=Decimal(threshold))

    continuation = continuation_from(replace(PARENT, context_tokens=tokens), RUN, limits)

    assert isinstance(continuation, kind)


def test_req8_the_window_is_that_of_the_next_tiers_model():
    parent = replace(PARENT, context_tokens=170_000)

    assert isinstance(
        continuation_from(parent, replace(RUN, context_window=1_000_000), LIMITS), Resume
    )
