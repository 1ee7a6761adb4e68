"""Who hears what, for any of it: nothing is lost, nothing is told twice, a storm stays small."""

from __future__ import annotations

from datetime import UTC, datetime, time

from hypothesis import given
from hypothesis import strategies as st

from escalation.word.routing import MOST_A_MINUTE, Listener, Said, Told, batches, why_not
from sessions_app.models import Happening, Incident

TIMES = st.none() | st.times()
LISTENERS = st.builds(
    Listener,
    least_severity=st.sampled_from(Incident.Severity.values),
    watches=st.frozensets(st.integers(1, 3), max_size=2),
    quiet_from=TIMES,
    quiet_until=TIMES,
    lately=st.integers(0, 10),
)
FACTS = st.tuples(
    st.sampled_from(Happening.Kind.values),
    st.sampled_from(Incident.Severity.values),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 4),
    st.booleans(),
)


@st.composite
def happenings(draw) -> list[Told]:
    return [
        Told(number=n, kind=kind, severity=severity, watch=watch, incident=incident, is_drill=drill)
        for n, (kind, severity, watch, incident, drill) in enumerate(
            draw(st.lists(FACTS, max_size=60)), start=1
        )
    ]


MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(LISTENERS, happenings(), MOMENTS)
def test_nothing_is_told_twice_and_nothing_that_is_not_for_it(listener, happened, now):
    told = [each for batch in batches(listener, happened, now) for each in batch.told]

    assert len({each.number for each in told}) == len(told)
    assert all(not why_not(listener, each, Said()) for each in told)


@given(LISTENERS, happenings(), MOMENTS)
def test_what_is_for_it_is_told_or_was_said_already(listener, happened, now):
    told = {each.number for batch in batches(listener, happened, now) for each in batch.told}
    last: dict[int, Said] = {}
    for each in happened:
        if not why_not(listener, each, last.get(each.incident or 0, Said())):
            assert each.number in told
            if each.incident is not None:
                last[each.incident] = Said(each.kind, each.severity)


@given(LISTENERS, happenings(), MOMENTS)
def test_however_much_happens_the_messages_are_few(listener, happened, now):
    found = batches(listener, happened, now)

    assert sum(not batch.is_summary for batch in found) <= MOST_A_MINUTE
    assert sum(batch.is_summary for batch in found) <= 2


@given(happenings(), MOMENTS, st.times(), st.times())
def test_what_is_critical_is_never_held_back_for_longer_than_a_storm(happened, now, begin, end):
    listener = Listener(quiet_from=begin, quiet_until=end)

    for batch in batches(listener, happened, now):
        if any(each.severity == Incident.Severity.CRITICAL for each in batch.told):
            assert (batch.due_at - now).total_seconds() <= 60


@given(MOMENTS, st.times(), st.times())
def test_quiet_hours_end_within_a_day(now: datetime, begin: time, end: time):
    listener = Listener(quiet_from=begin, quiet_until=end)
    happened = [Told(number=1, kind="budget", severity=2)]

    [batch] = batches(listener, happened, now)

    assert 0 <= (batch.due_at - now).total_seconds() <= 24 * 3600
