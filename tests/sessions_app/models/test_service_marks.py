"""Marks of a service: one for each cycle, and the time of its current state."""

from __future__ import annotations

from sessions_app.models.incident import KEPT, Mark, since, with_mark


def marks(*statuses: str) -> list[Mark]:
    return [Mark(number, status, number * 60) for number, status in enumerate(statuses, start=1)]


def test_only_the_last_cycles_are_kept():
    kept = with_mark(marks(*["healthy"] * KEPT), Mark(KEPT + 1, "down", 9_999))

    assert len(kept) == KEPT
    assert (kept[0].cycle, kept[-1].status) == (2, "down")


def test_a_cycle_that_ends_again_replaces_its_mark():
    kept = with_mark(marks("healthy", "down"), Mark(2, "healthy", 120))

    assert [mark.status for mark in kept] == ["healthy", "healthy"]


def test_an_earlier_cycle_that_ends_again_keeps_its_position():
    kept = with_mark(marks("down", "healthy"), Mark(1, "degraded", 60))

    assert [mark.status for mark in kept] == ["degraded", "healthy"]


def test_a_status_begins_with_the_first_cycle_that_reported_it():
    assert since(marks("down", "healthy", "healthy")) == 120


def test_the_status_of_one_cycle_begins_with_it():
    assert since(marks("down")) == 60


def test_a_beginning_older_than_the_marks_is_kept():
    assert since(marks(*["healthy"] * KEPT), before=7) == 7


def test_a_change_of_status_ends_the_earlier_beginning():
    assert since(marks(*["healthy"] * (KEPT - 1), "down"), before=7) == KEPT * 60
