"""Any events in any order: no open incident is lost, and none is resolved twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escalation.incidents.states import Changed, IncidentState, Notify, State, Step
from tests.escalation.incidents.test_states import CHANGES, EVERY, LATER, OPEN

ENDINGS = {"seen healthy": "itself", "verified": "agent", "resolved": "person"}
stories = st.lists(st.sampled_from(sorted(CHANGES)), max_size=40)


def played(names: list[str]) -> list[tuple[str, IncidentState, Changed | None, IncidentState]]:
    now, steps = OPEN, []
    for name in names:
        change = CHANGES[name](now)
        after = change.state if isinstance(change, Changed) else now
        steps.append((name, now, change if isinstance(change, Changed) else None, after))
        now = after
    return steps


@given(stories)
def test_no_open_incident_is_lost(names):
    for name, before, _change, after in played(names):
        if after.is_resolved and not before.is_resolved:
            assert ENDINGS[name] == after.resolved_as
        if name == "seen healthy" and after.is_resolved and not before.is_resolved:
            assert before.healthy_cycles == 1


@given(stories)
def test_no_incident_is_resolved_twice(names):
    is_over = False
    for _name, _before, change, after in played(names):
        if change and change.notification in (Notify.INCIDENT_RESOLVED, Notify.FIX_VERIFIED):
            assert not is_over
        is_over = after.is_resolved


@given(stories)
def test_the_fields_always_agree_with_the_state(names):
    for _name, _before, _change, after in played(names):
        assert (after.resolved_at is not None) == after.is_resolved == bool(after.resolved_as)
        assert after.verify_at is None or after.state == State.VERIFYING
        assert after.state != State.ACKNOWLEDGED or after.acknowledged_at is not None
        assert after.snoozed_until is None or not after.is_resolved


@given(stories)
def test_counts_only_grow_and_every_change_has_an_event(names):
    for _name, before, change, after in played(names):
        assert after.times_seen >= before.times_seen
        assert after.times_reopened >= before.times_reopened
        assert change is None or change.step in Step.values
        assert change is not None or after is before


@given(st.sampled_from(sorted(EVERY)), st.sampled_from(sorted(CHANGES)))
def test_a_resolved_incident_only_takes_notes_or_is_reopened(state, name):
    change = CHANGES[name](EVERY[state])

    if state == "resolved" and isinstance(change, Changed):
        assert name in {"noted", "reopened"}


@given(stories)
def test_a_healthy_cycle_never_ends_a_verification(names):
    for name, before, _change, after in played(names):
        if before.state == State.VERIFYING and name == "seen healthy":
            assert after == before
        if after.state == State.VERIFYING and name == "fixed":
            assert after.verify_at == LATER
