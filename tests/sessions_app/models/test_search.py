"""Sessions are found by any part of their text, newest first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.management.sql import emit_post_migrate_signal, emit_pre_migrate_signal
from django.db.migrations import Migration

from sessions_app.models import Session
from sessions_app.models import search as searching
from sessions_app.models.search import is_too_short, matches, newest_matches
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db

OWN = ("session_id", "workdir", "error", "escalation_reason", "request")
OF_THE_CYCLE = ("outcome_reason", "watch_name", "prompt")


def found(words: str) -> list[int]:
    return [number for numbers in matches(words) for number in numbers]


@pytest.mark.parametrize("field", OWN)
@pytest.mark.parametrize("words", ["lighthouse", "HOUSE on", "ght"])
def test_a_session_is_found_by_each_of_its_fields(field, words):
    session = SessionFactory(**{field: "the lighthouse on the rock"})
    SessionFactory()

    assert found(words) == [session.pk]


@pytest.mark.parametrize("field", OF_THE_CYCLE)
def test_a_session_is_found_by_each_field_of_its_cycle(field):
    session = SessionFactory(cycle=CycleFactory(**{field: "a lighthouse"}))
    SessionFactory()

    assert found("lighthouse") == [session.pk]


def test_a_session_is_found_by_its_drill():
    session = SessionFactory(cycle=CycleFactory(watch=None, drill="three-tiers"))

    assert found("three-t") == [session.pk]


def test_a_session_is_found_by_the_current_and_the_former_name_of_its_watch():
    watch = WatchFactory(name="shop")
    session = SessionFactory(cycle=CycleFactory(watch=watch, watch_name="shop"))
    watch.name = "market"
    watch.save()

    assert (found("shop"), found("market")) == ([session.pk], [session.pk])


def test_a_changed_text_is_found_and_the_former_is_not():
    session = SessionFactory(error="broken pipe")
    Session.objects.filter(pk=session.pk).update(error="certificate expired")
    session.cycle.outcome_reason = "the lighthouse is dark"
    session.cycle.save()

    assert (found("certificate"), found("lighthouse is")) == ([session.pk], [session.pk])
    assert found("broken pipe") == []


def test_a_deleted_session_is_not_found():
    session = SessionFactory(error="lighthouse")
    session.delete()

    assert found("lighthouse") == []


@pytest.mark.parametrize(
    "odd", ['"', '""" OR 1', "a*b", "NEAR(", "%%%", "___", "'; DROP", "\\\\\\"]
)
def test_special_characters_are_matched_literally(odd):
    SessionFactory()
    session = SessionFactory(error=f"before {odd} after")

    assert found(f"e {odd} a") == [session.pk]


def test_the_newest_matches_come_first_in_parts(monkeypatch):
    monkeypatch.setattr(searching, "LOOKED_AT", 2)
    sessions = [SessionFactory(error="lighthouse") for _ in range(5)]
    newest_first = [session.pk for session in reversed(sessions)]

    assert list(matches("lighthouse")) == [newest_first[:2], newest_first[2:4], newest_first[4:]]


def test_other_filters_apply_to_the_matches(monkeypatch):
    monkeypatch.setattr(searching, "LOOKED_AT", 2)
    sessions = [SessionFactory(error="lighthouse", tier=1 + n % 2) for n in range(6)]
    second = Session.objects.filter(tier=2)

    numbers, down_to = newest_matches(second, "lighthouse", below=10**9, wanted=9, looked_at=100)

    assert numbers == [session.pk for session in reversed(sessions) if session.tier == 2]
    assert down_to == 0


def test_the_search_stops_at_its_limit_and_returns_its_position(monkeypatch):
    monkeypatch.setattr(searching, "LOOKED_AT", 2)
    sessions = [SessionFactory(error="lighthouse") for _ in range(6)]
    none = Session.objects.filter(tier=3)

    numbers, down_to = newest_matches(none, "lighthouse", below=10**9, wanted=9, looked_at=4)

    assert (numbers, down_to) == ([], sessions[2].pk)


@pytest.mark.parametrize(
    ("words", "answer"), [("ab", True), (" a ", True), ("abc", False), ("7", False), ("#7", False)]
)
def test_two_letters_are_too_short_and_a_number_is_not(words, answer):
    assert is_too_short(words) is answer


def migrate_while(change: Callable[[], object]) -> None:
    """Sends the signals of a `migrate` that has work to do, with `change` between them."""
    plan = [(Migration("0001_initial", "sessions_app"), False)]
    emit_pre_migrate_signal(0, False, "default", plan=plan)
    change()
    emit_post_migrate_signal(0, False, "default", plan=plan)


def test_sessions_written_during_a_migration_are_found():
    before = SessionFactory(error="broken pipe")
    removed = SessionFactory(error="a lighthouse")

    def change() -> None:
        SessionFactory(error="certificate expired")
        Session.objects.filter(pk=before.pk).update(error="disk full")
        Session.objects.filter(pk=removed.pk).delete()

    migrate_while(change)

    written = Session.objects.get(error="certificate expired")
    assert found("certificate") == [written.pk]
    assert found("disk full") == [before.pk]
    assert found("broken pipe") == found("lighthouse") == []


def test_sessions_written_after_a_migration_that_failed_are_found_after_the_next():
    plan = [(Migration("0001_initial", "sessions_app"), False)]
    emit_pre_migrate_signal(0, False, "default", plan=plan)
    session = SessionFactory(error="certificate expired")

    migrate_while(lambda: None)

    assert found("certificate") == [session.pk]


def test_a_migrate_without_a_migration_keeps_the_triggers():
    emit_pre_migrate_signal(0, False, "default", plan=[])
    session = SessionFactory(error="certificate expired")

    assert found("certificate") == [session.pk]
