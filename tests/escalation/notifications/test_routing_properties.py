"""Routing of any notifications: none is lost or sent twice, and a burst becomes a summary."""

from __future__ import annotations

from datetime import UTC, datetime, time

from hypothesis import given
from hypothesis import strategies as st

from escalation.notifications.routing import (
    MOST_A_MINUTE,
    Candidate,
    ChannelRules,
    LastNotification,
    batches,
    skip_reason,
)
from sessions_app.models import Incident, Notification

TIMES = st.none() | st.times()
LISTENERS = st.builds(
    ChannelRules,
    least_severity=st.sampled_from(Incident.Severity.values),
    watches=st.frozensets(st.integers(1, 3), max_size=2),
    quiet_from=TIMES,
    quiet_until=TIMES,
    lately=st.integers(0, 10),
)
FACTS = st.tuples(
    st.sampled_from(Notification.Kind.values),
    st.sampled_from(Incident.Severity.values),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 4),
    st.booleans(),
)


@st.composite
def notifications(draw) -> list[Candidate]:
    return [
        Candidate(
            number=n, kind=kind, severity=severity, watch=watch, incident=incident, is_drill=drill
        )
        for n, (kind, severity, watch, incident, drill) in enumerate(
            draw(st.lists(FACTS, max_size=60)), start=1
        )
    ]


MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(LISTENERS, notifications(), MOMENTS)
def test_nothing_is_sent_twice_or_against_the_rules(rules, candidates, now):
    told = [each for batch in batches(rules, candidates, now) for each in batch.candidates]

    assert len({each.number for each in told}) == len(told)
    assert all(not skip_reason(rules, each, LastNotification()) for each in told)


@given(LISTENERS, notifications(), MOMENTS)
def test_everything_wanted_is_sent_or_a_repetition(rules, candidates, now):
    told = {each.number for batch in batches(rules, candidates, now) for each in batch.candidates}
    last: dict[int, LastNotification] = {}
    for each in candidates:
        if not skip_reason(rules, each, last.get(each.incident or 0, LastNotification())):
            assert each.number in told
            if each.incident is not None:
                last[each.incident] = LastNotification(each.kind, each.severity)


@given(LISTENERS, notifications(), MOMENTS)
def test_the_number_of_messages_is_bounded(rules, candidates, now):
    found = batches(rules, candidates, now)

    assert sum(not batch.is_summary for batch in found) <= MOST_A_MINUTE
    assert sum(batch.is_summary for batch in found) <= 2


@given(notifications(), MOMENTS, st.times(), st.times())
def test_a_critical_notification_waits_at_most_for_a_burst(candidates, now, begin, end):
    rules = ChannelRules(quiet_from=begin, quiet_until=end)

    for batch in batches(rules, candidates, now):
        if any(each.severity == Incident.Severity.CRITICAL for each in batch.candidates):
            assert (batch.due_at - now).total_seconds() <= 60


@given(MOMENTS, st.times(), st.times())
def test_quiet_hours_end_within_a_day(now: datetime, begin: time, end: time):
    rules = ChannelRules(quiet_from=begin, quiet_until=end)
    candidates = [Candidate(number=1, kind="budget", severity=2)]

    [batch] = batches(rules, candidates, now)

    assert 0 <= (batch.due_at - now).total_seconds() <= 24 * 3600
