"""Every change from every state: the new state, the event and the notification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from escalation.incidents import states
from escalation.incidents.states import (
    LONGEST_SNOOZE,
    MOST_VERIFICATIONS,
    Change,
    Changed,
    IncidentState,
    Kept,
    Notify,
    State,
    Step,
)
from tests.tables import each_row

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)
ADA, BOB = 1, 2
KEPT = None

OPEN = IncidentState(severity=2, last_seen_at=NOON)
ACKNOWLEDGED = replace(OPEN, state=State.ACKNOWLEDGED, acknowledged_at=NOON, owner_id=ADA)
WORKING = replace(OPEN, state=State.WORKING)
VERIFYING = replace(OPEN, state=State.VERIFYING, verify_at=LATER, remedy="restarted web")
RESOLVED = replace(OPEN, state=State.RESOLVED, resolved_at=NOON, resolved_as="person")
EVERY = {
    "open": OPEN,
    "acknowledged": ACKNOWLEDGED,
    "working": WORKING,
    "verifying": VERIFYING,
    "resolved": RESOLVED,
}

CHANGES: dict[str, Callable[[IncidentState], Change]] = {
    "seen": lambda now: states.seen(now, LATER, 2),
    "seen as unknown": lambda now: states.seen(now, LATER, 2, is_certain=False),
    "seen healthy": lambda now: states.seen_healthy(now, LATER),
    "worked on": states.worked_on,
    "work ended": states.work_ended,
    "fixed": lambda now: states.fixed(now, LATER, "restarted web"),
    "verified": lambda now: states.verified(now, LATER),
    "not verified": lambda now: states.not_verified(now, LATER),
    "did not hold": lambda now: states.did_not_hold(now, LATER, 3),
    "acknowledged": lambda now: states.acknowledged(now, BOB, LATER),
    "snoozed": lambda now: states.snoozed(now, BOB, LATER + timedelta(hours=1), LATER),
    "handed over": lambda now: states.handed_over(now, BOB, LATER),
    "let go": lambda now: states.handed_over(now, None, LATER),
    "approved": lambda now: states.answered(now, is_approved=True),
    "rejected": lambda now: states.answered(now, is_approved=False),
    "noted": states.noted,
    "resolved": lambda now: states.resolved(now, BOB, LATER),
    "reopened": states.reopened,
}

# change: what it leads to from open, acknowledged, working, verifying, resolved
TABLE: dict[str, tuple[str | None, str | None, str | None, str | None, str | None]] = {
    "seen": ("open", "acknowledged", "open", "open", KEPT),
    "seen as unknown": ("open", "acknowledged", "open", KEPT, KEPT),
    "seen healthy": ("open", "acknowledged", "open", KEPT, KEPT),
    "worked on": ("working", "working", "working", KEPT, KEPT),
    "work ended": (KEPT, KEPT, "open", KEPT, KEPT),
    "fixed": ("verifying", "verifying", "verifying", "verifying", KEPT),
    "verified": (KEPT, KEPT, KEPT, "resolved", KEPT),
    "not verified": (KEPT, KEPT, KEPT, "verifying", KEPT),
    "did not hold": (KEPT, KEPT, KEPT, "open", KEPT),
    "acknowledged": ("acknowledged", KEPT, "working", "verifying", KEPT),
    "snoozed": ("acknowledged", "acknowledged", "working", "verifying", KEPT),
    "handed over": ("acknowledged", "acknowledged", "working", "verifying", KEPT),
    "let go": (KEPT, "open", KEPT, KEPT, KEPT),
    "approved": ("open", "acknowledged", "working", "verifying", KEPT),
    "rejected": ("open", "acknowledged", "working", "verifying", KEPT),
    "noted": ("open", "acknowledged", "working", "verifying", "resolved"),
    "resolved": ("resolved", "resolved", "resolved", "resolved", KEPT),
    "reopened": (KEPT, KEPT, KEPT, KEPT, "open"),
}


def test_an_unknown_state_does_not_lower_the_severity():
    critical = replace(OPEN, severity=3)

    assert changed(states.seen(critical, LATER, 2, is_certain=False)).state.severity == 3
    assert changed(states.seen(critical, LATER, 2)).state.severity == 2


def changed(change: Change) -> Changed:
    assert isinstance(change, Changed), change
    return change


def test_the_table_names_every_change():
    assert TABLE.keys() == CHANGES.keys()


@each_row("name", TABLE)
@each_row("place", range(len(EVERY)))
def test_each_change_from_each_state_has_its_result(name, place):
    before = list(EVERY.values())[place]

    change = CHANGES[name](before)

    expected = TABLE[name][place]
    if expected is KEPT:
        assert isinstance(change, Kept)
        assert change.reason
    else:
        assert changed(change).state.state == expected


def test_a_cycle_counts_once_however_many_tiers_report_it():
    again = changed(states.seen(OPEN, LATER, 2, is_new_cycle=False)).state

    assert (again.times_seen, again.last_seen_at) == (1, LATER)


def test_after_a_snooze_it_can_be_acknowledged_again():
    woken = replace(ACKNOWLEDGED, snoozed_until=LATER)

    again = changed(states.acknowledged(woken, BOB, LATER))

    assert (again.state.state, again.state.snoozed_until) == (State.ACKNOWLEDGED, None)
    assert isinstance(states.acknowledged(woken, BOB, LATER - timedelta(minutes=1)), Kept)


def test_a_new_sighting_counts_and_resets_healthy_cycles():
    recovering = replace(OPEN, healthy_cycles=1)

    again = changed(states.seen(recovering, LATER, 2))

    assert (again.state.times_seen, again.state.healthy_cycles) == (2, 0)
    assert (again.step, again.notification) == (Step.SEEN, "")


def test_a_higher_severity_ends_the_snooze():
    asleep = replace(ACKNOWLEDGED, snoozed_until=LATER + timedelta(days=1))

    worse = changed(states.seen(asleep, LATER, 3))
    same = changed(states.seen(asleep, LATER, 2))

    assert (worse.step, worse.state.snoozed_until) == (Step.WORSE, None)
    assert (worse.state.state, same.state.state) == (State.OPEN, State.ACKNOWLEDGED)
    assert (worse.notification, same.notification) == (Notify.INCIDENT_OPENED, "")
    assert same.state.snoozed_until is not None


def test_the_second_healthy_cycle_resolves_the_incident():
    first = changed(states.seen_healthy(OPEN, NOON))
    second = changed(states.seen_healthy(first.state, LATER))

    assert (first.step, first.notification) == (Step.RECOVERED, "")
    assert (second.step, second.notification) == (Step.RESOLVED, Notify.INCIDENT_RESOLVED)
    assert (second.state.resolved_as, second.state.resolved_at) == ("itself", LATER)


def test_a_verified_fix_resolves_the_incident_by_the_agent():
    verified = changed(states.verified(VERIFYING, LATER))

    assert (verified.state.resolved_as, verified.notification) == ("agent", Notify.FIX_VERIFIED)
    assert verified.state.verify_at is None


def test_a_failed_fix_opens_the_incident_and_clears_its_acknowledgement():
    taken = replace(VERIFYING, acknowledged_at=NOON, owner_id=ADA)

    back = changed(states.did_not_hold(taken, LATER, 3))

    assert (back.state.state, back.state.times_reopened) == (State.OPEN, 1)
    assert (back.state.severity, back.state.remedy) == (3, "restarted web")
    assert (back.state.owner_id, back.state.acknowledged_at) == (ADA, None)
    assert back.notification == Notify.FIX_DID_NOT_HOLD


def test_a_sighting_during_verification_is_a_failed_fix():
    assert states.seen(VERIFYING, LATER, 3) == states.did_not_hold(VERIFYING, LATER, 3)


def test_a_verification_without_a_result_is_retried_and_then_opens_the_incident():
    now, steps = VERIFYING, []
    for _ in range(MOST_VERIFICATIONS):
        change = changed(states.not_verified(now, LATER))
        now = change.state
        steps.append((now.state, now.verify_at, change.notification))

    waiting = (State.VERIFYING, LATER, "")
    assert steps == [waiting, waiting, (State.OPEN, None, Notify.INCIDENT_OPENED)]


def test_without_a_next_verification_the_incident_is_opened():
    assert changed(states.not_verified(VERIFYING, None)).state.state == State.OPEN


def test_a_new_fix_has_its_own_verifications():
    tried = replace(OPEN, verifications_tried=3)

    assert changed(states.fixed(tried, LATER, "x")).state.verifications_tried == 0


def test_the_first_acknowledgement_sets_the_owner():
    first = changed(states.acknowledged(OPEN, ADA, LATER))
    owned = changed(states.acknowledged(replace(OPEN, owner_id=ADA), BOB, LATER))

    assert (first.state.owner_id, first.notification) == (ADA, Notify.INCIDENT_CHANGED_HANDS)
    assert (owned.state.owner_id, owned.notification) == (ADA, "")


def test_after_work_an_acknowledged_incident_is_acknowledged_again():
    at_work = changed(states.worked_on(ACKNOWLEDGED)).state

    assert changed(states.work_ended(at_work)).state.state == State.ACKNOWLEDGED


@pytest.mark.parametrize(
    "until", [NOON - timedelta(days=1), NOON, NOON + LONGEST_SNOOZE + timedelta(seconds=1)]
)
def test_a_snooze_in_the_past_or_for_too_long_is_refused(until):
    assert isinstance(states.snoozed(OPEN, ADA, until, NOON), Kept)


def test_assigning_to_the_current_owner_changes_nothing():
    assert isinstance(states.handed_over(ACKNOWLEDGED, ADA, LATER), Kept)


def test_the_resolver_is_stored_until_the_incident_is_reopened():
    ended = changed(states.resolved(OPEN, ADA, LATER)).state
    back = changed(states.reopened(ended)).state

    assert (ended.resolved_as, ended.resolved_by_id) == ("person", ADA)
    assert (back.resolved_at, back.resolved_as, back.resolved_by_id) == (None, "", None)
    assert back.times_reopened == 1
