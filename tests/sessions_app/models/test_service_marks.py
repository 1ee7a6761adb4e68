"""Marks of a service: one for each round, and since when it is as it is."""

from __future__ import annotations

from sessions_app.models.incident import KEPT, Mark, since, with_mark


def marks(*statuses: str) -> list[Mark]:
    return [Mark(number, status, number * 60) for number, status in enumerate(statuses, start=1)]


def test_only_the_last_rounds_are_kept():
    kept = with_mark(marks(*["healthy"] * KEPT), Mark(KEPT + 1, "down", 9_999))

    assert len(kept) == KEPT
    assert (kept[0].cycle, kept[-1].status) == (2, "down")


def test_a_round_that_ends_again_replaces_its_mark():
    kept = with_mark(marks("healthy", "down"), Mark(2, "healthy", 120))

    assert [mark.status for mark in kept] == ["healthy", "healthy"]


def test_an_earlier_round_that_ends_again_stays_in_its_place():
    kept = with_mark(marks("down", "healthy"), Mark(1, "degraded", 60))

    assert [mark.status for mark in kept] == ["degraded", "healthy"]


def test_it_is_so_since_the_first_round_of_the_last_status():
    assert since(marks("down", "healthy", "healthy")) == 120


def test_one_round_is_since_itself():
    assert since(marks("down")) == 60


def test_what_is_older_than_the_marks_is_remembered():
    assert since(marks(*["healthy"] * KEPT), before=7) == 7


def test_what_was_known_before_does_not_count_after_a_change():
    assert since(marks(*["healthy"] * (KEPT - 1), "down"), before=7) == KEPT * 60
