from __future__ import annotations

import pytest

from sessions_app.history.cycles import stop_of, stopped_by
from tests.factories import SessionFactory
from tests.tables import each_row


@each_row(
    ("cause", "words", "told"),
    [
        ("person", "ada", "stopped by ada"),
        ("person", "", "stopped by a person"),
        ("person", "ada\nevent: x", "stopped by ada event: x"),
        ("pause", "paused: a storm", "stopped by the pause switch"),
        ("worker", "the worker was told to stop", "stopped by the end of the worker"),
        ("foreground", "", "stopped by the end of the command in the terminal"),
        ("time_limit", "15 min", ""),
        ("", "", ""),
    ],
)
def test_only_a_requested_stop_counts_as_stopped(cause, words, told):
    assert stopped_by(cause, words) == told


def test_a_chain_without_sessions_was_not_stopped():
    assert stop_of([]) == ""


@pytest.mark.django_db
def test_a_chain_that_continued_after_a_stop_was_not_stopped():
    stopped = SessionFactory(status="interrupted", stop_cause="person", stop_requested="ada")
    assert stop_of([stopped]) == "stopped by ada"

    later = SessionFactory(parent_session=stopped)

    assert stop_of([stopped, later]) == ""
