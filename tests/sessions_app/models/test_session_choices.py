"""The table of what the purpose of a session means."""

from __future__ import annotations

from dataclasses import fields

import pytest

from sessions_app.models.session import TRAITS, Purpose, Traits, purposes_where

HOLDS_FOR = {
    "counts_as_evidence": {
        *("tier", "report", "continuation", "findings", "fork", "retry", "recovery"),
    },
    "may_change": {
        *("tier", "report", "continuation", "findings", "fork", "retry", "recovery", "attached"),
    },
    "is_question": {"follow_up"},
    "is_plan": {"plan"},
    "ends_cycle": {purpose.value for purpose in Purpose} - {"plan"},
    "continues_tier": {"report", "continuation", "findings", "recovery"},
    "spends_tier_budget": {"report", "continuation", "recovery"},
    "starts_branch": {"follow_up", "fork", "retry", "plan", "attached"},
    "looks_back": {"report", "follow_up", "attached"},
    "is_compared": {"tier", "retry"},
    "is_interactive": {"attached"},
}


def test_every_purpose_is_in_the_table():
    assert set(TRAITS) == set(Purpose)


def test_no_trait_has_a_default_that_a_new_purpose_would_take_over():
    with pytest.raises(TypeError):
        Traits()  # type: ignore[call-arg]


def test_every_trait_has_its_purposes():
    holds = {
        trait.name: {purpose.value for purpose in Purpose if getattr(purpose.traits, trait.name)}
        for trait in fields(Traits)
    }

    assert holds == HOLDS_FOR


def test_a_purpose_that_changes_nothing_is_no_evidence():
    assert purposes_where(lambda traits: traits.counts_as_evidence and not traits.may_change) == ()


def test_purposes_are_found_by_a_condition_on_their_traits():
    assert purposes_where(lambda traits: traits.is_question) == (Purpose.FOLLOW_UP,)
