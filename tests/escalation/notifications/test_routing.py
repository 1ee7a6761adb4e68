"""Tests of routing rules."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from escalation.notifications.routing import (
    BURST_WAIT,
    MOST_A_MINUTE,
    Candidate,
    ChannelRules,
    LastNotification,
    batches,
    end_of_quiet,
    skip_reason,
)
from escalation.notifications.routing import SkipReason as Skip
from sessions_app.models import Incident, Notification
from tests.tables import each_row

Kind, Severity = Notification.Kind, Incident.Severity
NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
NIGHT = datetime(2026, 3, 4, 23, 30, tzinfo=UTC)
EVERYTHING = ChannelRules(least_severity=Severity.NOTICE)
QUIET = ChannelRules(quiet_from=time(22), quiet_until=time(7))


def candidate(number: int = 1, **facts) -> Candidate:
    given = {"kind": Kind.INCIDENT_OPENED, "severity": Severity.WARNING, "incident": number}
    return Candidate(number=number, **{**given, **facts})


@each_row(
    ("rules", "candidate", "last_sent", "why"),
    [
        (EVERYTHING, candidate(), "", None),
        (EVERYTHING, candidate(is_drill=True), "", Skip.DRILL),
        (EVERYTHING, candidate(is_over=True), "", Skip.DECIDED),
        (ChannelRules(), candidate(severity=Severity.NOTICE), "", Skip.SEVERITY),
        (ChannelRules(), candidate(severity=Severity.WARNING), "", None),
        (ChannelRules(least_severity=Severity.CRITICAL), candidate(), "", Skip.SEVERITY),
        (ChannelRules(watches=frozenset({1})), candidate(watch=1), "", None),
        (ChannelRules(watches=frozenset({1})), candidate(watch=2), "", Skip.WATCH),
        (ChannelRules(watches=frozenset({1})), candidate(watch=None), "", None),
        (EVERYTHING, candidate(), Kind.INCIDENT_OPENED, Skip.REPEATED),
        (EVERYTHING, candidate(), Kind.INCIDENT_RESOLVED, None),
        (EVERYTHING, candidate(kind=Kind.COOLDOWN), Kind.COOLDOWN, Skip.REPEATED),
        (EVERYTHING, candidate(severity=Severity.CRITICAL), Kind.INCIDENT_OPENED, None),
        (EVERYTHING, candidate(severity=Severity.NOTICE), Kind.INCIDENT_OPENED, Skip.REPEATED),
        (EVERYTHING, candidate(kind=Kind.FIX_DID_NOT_HOLD), Kind.FIX_DID_NOT_HOLD, None),
        (
            EVERYTHING,
            candidate(kind=Kind.INCIDENT_CHANGED_HANDS),
            Kind.INCIDENT_CHANGED_HANDS,
            None,
        ),
    ],
)
def test_a_channel_skips_unwanted_notifications(rules, candidate, last_sent, why):
    last = LastNotification(last_sent, Severity.WARNING)

    assert skip_reason(rules, candidate, last) is why


@each_row(
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
def test_the_end_of_quiet_hours(begin, end, clock, until):
    assert end_of_quiet(begin, end, datetime.combine(NOON, clock, tzinfo=UTC)) == until


def test_each_notification_is_one_message():
    found = batches(EVERYTHING, [candidate(1), candidate(2)], NOON)

    assert [batch.candidates for batch in found] == [(candidate(1),), (candidate(2),)]
    assert all(batch.due_at == NOON and not batch.is_summary for batch in found)


def test_repeated_notifications_of_an_incident_are_one_message():
    found = batches(EVERYTHING, [candidate(n, incident=7) for n in range(1, 50)], NOON)

    assert [batch.candidates for batch in found] == [(candidate(1, incident=7),)]


def test_a_worse_incident_is_sent_once_more():
    severities = [Severity.WARNING, Severity.CRITICAL, Severity.WARNING, Severity.CRITICAL]
    candidates = [candidate(n, incident=7, severity=one) for n, one in enumerate(severities)]

    assert [batch.candidates[0].number for batch in batches(EVERYTHING, candidates, NOON)] == [0, 1]


def test_a_reopened_incident_is_sent_again():
    kinds = [Kind.INCIDENT_OPENED, Kind.INCIDENT_RESOLVED, Kind.INCIDENT_OPENED]
    candidates = [candidate(n, incident=7, kind=kind) for n, kind in enumerate(kinds)]

    assert len(batches(EVERYTHING, candidates, NOON)) == 3


def test_a_burst_becomes_one_summary():
    found = batches(EVERYTHING, [candidate(n) for n in range(1, 1001)], NOON)

    assert len(found) == MOST_A_MINUTE + 1
    assert found[-1].is_summary
    assert found[-1].due_at == NOON + BURST_WAIT
    assert len(found[-1].candidates) == 1000 - MOST_A_MINUTE


def test_messages_of_the_last_minute_count_for_a_burst():
    found = batches(
        ChannelRules(least_severity=Severity.NOTICE, lately=MOST_A_MINUTE), [candidate()], NOON
    )

    assert [batch.is_summary for batch in found] == [True]


def test_quiet_hours_collect_all_but_critical_notifications():
    worse = candidate(2, severity=Severity.CRITICAL)

    found = batches(QUIET, [candidate(1), worse, candidate(3)], NIGHT)

    assert [(batch.candidates, batch.is_summary) for batch in found] == [
        ((worse,), False),
        ((candidate(1), candidate(3)), True),
    ]
    assert found[1].due_at == datetime(2026, 3, 5, 7, tzinfo=UTC)


def test_a_burst_of_critical_notifications_in_quiet_hours_is_a_summary_within_a_minute():
    candidates = [candidate(n, severity=Severity.CRITICAL) for n in range(1, 101)]

    found = batches(QUIET, candidates, NIGHT)

    assert len(found) == MOST_A_MINUTE + 1
    assert found[-1].due_at == NIGHT + timedelta(minutes=1)
