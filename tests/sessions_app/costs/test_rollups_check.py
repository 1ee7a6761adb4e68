"""A wrong sum is reported with its name, and can be rebuilt."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import connection
from django.db.models import F

from sessions_app.costs.rollups import check, rebuild_sums
from sessions_app.models import Cycle, DailyVerdict, PeriodCost, SearchText, Session
from sessions_app.models.search import rebuild_search_text
from tests.factories import CommandEventFactory, SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db


@pytest.fixture
def record() -> Session:
    three_tier_chain(drill=True)
    SessionFactory(failed=True, estimated_cost_usd=Decimal("0.5"))
    CommandEventFactory(verdict="deny")
    return three_tier_chain()[2]


def test_sums_written_by_transitions_are_right(record):
    found = check()

    assert found.is_right
    assert found.sessions == Session.objects.count()


@pytest.mark.parametrize(
    "change",
    [
        {"cost_usd": F("cost_usd") + Decimal("0.01")},
        {"runs": F("runs") - 1},
        {"unknown": 7},
        {"tokens": F("tokens") + 1},
        {"cache_read_tokens": F("cache_read_tokens") + 1},
        {"model": "another"},
    ],
    ids=str,
)
def test_a_wrong_sum_is_found_and_rebuilt(record, change):
    PeriodCost.objects.filter(tier=3, drill="").update(**change)

    assert any("Tier 3" in difference for difference in check().differences)
    rebuild_sums()
    assert check().is_right


def test_a_changed_session_is_found(record):
    Session.objects.filter(pk=record.pk).update(cost_usd=Decimal("9"))

    assert "the sessions give 1 sessions, $9.00" in " ".join(check().differences)


def test_a_wrong_count_of_verdicts_is_found(record):
    DailyVerdict.objects.update(count=5)

    assert "stored 5 times 'deny', the events give 1" in " ".join(check().differences)
    rebuild_sums()
    assert check().is_right


def test_an_outdated_search_text_is_found(record):
    SearchText.objects.filter(pk=record.pk).update(text="other words")

    assert f"session {record.pk} has an outdated search text" in " ".join(check().differences)
    rebuild_search_text()
    assert check().is_right


def test_a_session_with_another_watch_than_its_cycle_is_found(record):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sessions SET watch_id = NULL WHERE id = %s", [record.pk])

    assert "its cycle of watch" in " ".join(check().differences)


def test_a_rebuild_does_not_change_cycles(record):
    before = list(Cycle.objects.values())

    rebuild_sums()

    assert list(Cycle.objects.values()) == before
