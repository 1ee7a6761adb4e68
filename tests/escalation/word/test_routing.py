"""Who hears what: tables."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest

from escalation.word.routing import (
    MOST_A_MINUTE,
    STORM_WAIT,
    Listener,
    Said,
    Told,
    batches,
    end_of_quiet,
    why_not,
)
from sessions_app.models import Happening, Incident

Kind, Severity = Happening.Kind, Incident.Severity
NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
NIGHT = datetime(2026, 3, 4, 23, 30, tzinfo=UTC)
EVERYTHING = Listener(least_severity=Severity.NOTICE)
QUIET = Listener(quiet_from=time(22), quiet_until=time(7))


def told(number: int = 1, **facts) -> Told:
    given = {"kind": Kind.INCIDENT_OPENED, "severity": Severity.WARNING, "incident": number}
    return Told(number=number, **{**given, **facts})


@pytest.mark.parametrize(
    ("listener", "happened", "last_said", "why"),
    [
        (EVERYTHING, told(), "", ""),
        (EVERYTHING, told(is_drill=True), "", "drill"),
        (EVERYTHING, told(is_over=True), "", "answered"),
        (Listener(), told(severity=Severity.NOTICE), "", "less than"),
        (Listener(), told(severity=Severity.WARNING), "", ""),
        (Listener(least_severity=Severity.CRITICAL), told(), "", "less than"),
        (Listener(watches=frozenset({1})), told(watch=1), "", ""),
        (Listener(watches=frozenset({1})), told(watch=2), "", "another watch"),
        (Listener(watches=frozenset({1})), told(watch=None), "", ""),
        (EVERYTHING, told(), Kind.INCIDENT_OPENED, "already"),
        (EVERYTHING, told(), Kind.INCIDENT_RESOLVED, ""),
        (EVERYTHING, told(kind=Kind.COOLDOWN), Kind.COOLDOWN, "already"),
        (EVERYTHING, told(severity=Severity.CRITICAL), Kind.INCIDENT_OPENED, ""),
        (EVERYTHING, told(severity=Severity.NOTICE), Kind.INCIDENT_OPENED, "already"),
        (EVERYTHING, told(kind=Kind.FIX_DID_NOT_HOLD), Kind.FIX_DID_NOT_HOLD, ""),
        (EVERYTHING, told(kind=Kind.INCIDENT_CHANGED_HANDS), Kind.INCIDENT_CHANGED_HANDS, ""),
    ],
)
def test_who_hears_what(listener, happened, last_said, why):
    said = why_not(listener, happened, Said(last_said, Severity.WARNING))

    assert why in said
    assert bool(said) == bool(why)


@pytest.mark.parametrize(
    ("begin", "end", "clock", "until"),
    [
        (time(22), time(7), time(21, 59), None),
        (time(22), time(7), time(22, 0), datetime(2026, 3, 5, 7, tzinfo=UTC)),
        (time(22), time(7), time(23, 59, 59), datetime(2026, 3, 5, 7, tzinfo=UTC)),
        (time(22), time(7), time(0, 0), datetime(2026, 3, 4, 7, tzinfo=UTC)),
        (time(22), time(7), time(6, 59, 59), datetime(2026, 3, 4, 7, tzinfo=UTC)),
        (time(22), time(7), time(7, 0), None),
        (time(1), time(6), time(0, 59), None),
        (time(1), time(6), time(1, 0), datetime(2026, 3, 4, 6, tzinfo=UTC)),
        (time(1), time(6), time(6, 0), None),
        (time(8), time(8), time(8, 0), None),
        (None, time(7), time(3, 0), None),
        (time(22), None, time(23, 0), None),
    ],
)
def test_when_quiet_hours_end(begin, end, clock, until):
    assert end_of_quiet(begin, end, datetime.combine(NOON, clock, tzinfo=UTC)) == until


def test_one_message_for_each_thing_that_happened():
    found = batches(EVERYTHING, [told(1), told(2)], NOON)

    assert [batch.told for batch in found] == [(told(1),), (told(2),)]
    assert all(batch.due_at == NOON and not batch.is_summary for batch in found)


def test_one_message_for_one_incident_however_often_it_is_told():
    found = batches(EVERYTHING, [told(n, incident=7) for n in range(1, 50)], NOON)

    assert [batch.told for batch in found] == [(told(1, incident=7),)]


def test_an_incident_that_got_worse_is_told_once_more_and_not_each_time_it_swings():
    severities = [Severity.WARNING, Severity.CRITICAL, Severity.WARNING, Severity.CRITICAL]
    happened = [told(n, incident=7, severity=one) for n, one in enumerate(severities)]

    assert [batch.told[0].number for batch in batches(EVERYTHING, happened, NOON)] == [0, 1]


def test_an_incident_that_was_resolved_and_came_back_is_told_again():
    kinds = [Kind.INCIDENT_OPENED, Kind.INCIDENT_RESOLVED, Kind.INCIDENT_OPENED]
    happened = [told(n, incident=7, kind=kind) for n, kind in enumerate(kinds)]

    assert len(batches(EVERYTHING, happened, NOON)) == 3


def test_a_storm_becomes_one_summary():
    found = batches(EVERYTHING, [told(n) for n in range(1, 1001)], NOON)

    assert len(found) == MOST_A_MINUTE + 1
    assert found[-1].is_summary
    assert found[-1].due_at == NOON + STORM_WAIT
    assert len(found[-1].told) == 1000 - MOST_A_MINUTE


def test_what_was_sent_within_the_last_minute_counts_for_the_storm():
    found = batches(Listener(least_severity=Severity.NOTICE, lately=MOST_A_MINUTE), [told()], NOON)

    assert [batch.is_summary for batch in found] == [True]


def test_in_quiet_hours_all_but_the_critical_is_gathered_until_their_end():
    worse = told(2, severity=Severity.CRITICAL)

    found = batches(QUIET, [told(1), worse, told(3)], NIGHT)

    assert [(batch.told, batch.is_summary) for batch in found] == [
        ((worse,), False),
        ((told(1), told(3)), True),
    ]
    assert found[1].due_at == datetime(2026, 3, 5, 7, tzinfo=UTC)


def test_a_storm_of_critical_things_at_night_is_a_summary_within_a_minute():
    happened = [told(n, severity=Severity.CRITICAL) for n in range(1, 101)]

    found = batches(QUIET, happened, NIGHT)

    assert len(found) == MOST_A_MINUTE + 1
    assert found[-1].due_at == NIGHT + timedelta(minutes=1)
