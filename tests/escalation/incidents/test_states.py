"""Every change from every state: what it leads to, which step is told, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from escalation.incidents import standing
from escalation.incidents.standing import (
    LONGEST_SNOOZE,
    MOST_VERIFICATIONS,
    Change,
    Changed,
    Kept,
    Standing,
    State,
    Step,
    Told,
)

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)
ADA, BOB = 1, 2
KEPT = None

OPEN = Standing(severity=2, last_seen_at=NOON)
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

CHANGES: dict[str, Callable[[Standing], Change]] = {
    "seen": lambda now: standing.seen(now, LATER, 2),
    "seen healthy": lambda now: standing.seen_healthy(now, LATER),
    "worked on": standing.worked_on,
    "work ended": standing.work_ended,
    "fixed": lambda now: standing.fixed(now, LATER, "restarted web"),
    "verified": lambda now: standing.verified(now, LATER),
    "not verified": lambda now: standing.not_verified(now, LATER),
    "did not hold": lambda now: standing.did_not_hold(now, LATER, 3),
    "acknowledged": lambda now: standing.acknowledged(now, BOB, LATER),
    "snoozed": lambda now: standing.snoozed(now, BOB, LATER + timedelta(hours=1), LATER),
    "handed over": lambda now: standing.handed_over(now, BOB, LATER),
    "let go": lambda now: standing.handed_over(now, None, LATER),
    "noted": standing.noted,
    "resolved": lambda now: standing.resolved(now, BOB, LATER),
    "reopened": standing.reopened,
}

# change: what it leads to from open, acknowledged, working, verifying, resolved
TABLE: dict[str, tuple[str | None, str | None, str | None, str | None, str | None]] = {
    "seen": ("open", "acknowledged", "open", "open", KEPT),
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
    "noted": ("open", "acknowledged", "working", "verifying", "resolved"),
    "resolved": ("resolved", "resolved", "resolved", "resolved", KEPT),
    "reopened": (KEPT, KEPT, KEPT, KEPT, "open"),
}


def changed(change: Change) -> Changed:
    assert isinstance(change, Changed), change
    return change


def test_the_table_names_every_change():
    assert TABLE.keys() == CHANGES.keys()


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("place", range(len(EVERY)))
def test_each_change_from_each_state(name, place):
    before = list(EVERY.values())[place]

    change = CHANGES[name](before)

    expected = TABLE[name][place]
    if expected is KEPT:
        assert isinstance(change, Kept)
        assert change.reason
    else:
        assert changed(change).standing.state == expected


def test_a_round_counts_once_however_many_tiers_say_it():
    again = changed(standing.seen(OPEN, LATER, 2, is_new_round=False)).standing

    assert (again.times_seen, again.last_seen_at) == (1, LATER)


def test_after_a_snooze_it_can_be_acknowledged_again():
    woken = replace(ACKNOWLEDGED, snoozed_until=LATER)

    again = changed(standing.acknowledged(woken, BOB, LATER))

    assert (again.standing.state, again.standing.snoozed_until) == (State.ACKNOWLEDGED, None)
    assert isinstance(standing.acknowledged(woken, BOB, LATER - timedelta(minutes=1)), Kept)


def test_seen_again_counts_and_forgets_the_healthy_round():
    recovering = replace(OPEN, healthy_rounds=1)

    again = changed(standing.seen(recovering, LATER, 2))

    assert (again.standing.times_seen, again.standing.healthy_rounds) == (2, 0)
    assert (again.step, again.told) == (Step.SEEN, "")


def test_what_gets_worse_ends_its_snooze():
    asleep = replace(ACKNOWLEDGED, snoozed_until=LATER + timedelta(days=1))

    worse = changed(standing.seen(asleep, LATER, 3))
    same = changed(standing.seen(asleep, LATER, 2))

    assert (worse.step, worse.standing.snoozed_until) == (Step.WORSE, None)
    assert (worse.standing.state, same.standing.state) == (State.OPEN, State.ACKNOWLEDGED)
    assert (worse.told, same.told) == (Told.INCIDENT_OPENED, "")
    assert same.standing.snoozed_until is not None


def test_the_second_healthy_round_resolves_it_by_itself():
    first = changed(standing.seen_healthy(OPEN, NOON))
    second = changed(standing.seen_healthy(first.standing, LATER))

    assert (first.step, first.told) == (Step.RECOVERED, "")
    assert (second.step, second.told) == (Step.RESOLVED, Told.INCIDENT_RESOLVED)
    assert (second.standing.resolved_as, second.standing.resolved_at) == ("itself", LATER)


def test_a_fix_that_was_verified_is_resolved_by_the_agent():
    verified = changed(standing.verified(VERIFYING, LATER))

    assert (verified.standing.resolved_as, verified.told) == ("agent", Told.FIX_VERIFIED)
    assert verified.standing.verify_at is None


def test_a_fix_that_did_not_hold_is_open_for_everybody_again():
    taken = replace(VERIFYING, acknowledged_at=NOON, owner_id=ADA)

    back = changed(standing.did_not_hold(taken, LATER, 3))

    assert (back.standing.state, back.standing.times_reopened) == (State.OPEN, 1)
    assert (back.standing.severity, back.standing.remedy) == (3, "restarted web")
    assert (back.standing.owner_id, back.standing.acknowledged_at) == (ADA, None)
    assert back.told == Told.FIX_DID_NOT_HOLD


def test_a_round_that_sees_it_while_its_fix_waits_is_proof_enough():
    assert standing.seen(VERIFYING, LATER, 3) == standing.did_not_hold(VERIFYING, LATER, 3)


def test_a_verification_that_cannot_say_is_tried_again_and_then_a_person_is_asked():
    now, steps = VERIFYING, []
    for _ in range(MOST_VERIFICATIONS):
        change = changed(standing.not_verified(now, LATER))
        now = change.standing
        steps.append((now.state, now.verify_at, change.told))

    waiting = (State.VERIFYING, LATER, "")
    assert steps == [waiting, waiting, (State.OPEN, None, Told.INCIDENT_OPENED)]


def test_where_nobody_will_look_again_a_person_is_asked_at_once():
    assert changed(standing.not_verified(VERIFYING, None)).standing.state == State.OPEN


def test_a_new_fix_has_its_own_tries():
    tried = replace(OPEN, verifications_tried=3)

    assert changed(standing.fixed(tried, LATER, "x")).standing.verifications_tried == 0


def test_whoever_acknowledges_first_has_it():
    first = changed(standing.acknowledged(OPEN, ADA, LATER))
    owned = changed(standing.acknowledged(replace(OPEN, owner_id=ADA), BOB, LATER))

    assert (first.standing.owner_id, first.told) == (ADA, Told.INCIDENT_CHANGED_HANDS)
    assert (owned.standing.owner_id, owned.told) == (ADA, "")


def test_work_on_something_acknowledged_leads_back_to_whoever_has_it():
    at_work = changed(standing.worked_on(ACKNOWLEDGED)).standing

    assert changed(standing.work_ended(at_work)).standing.state == State.ACKNOWLEDGED


@pytest.mark.parametrize(
    "until", [NOON - timedelta(days=1), NOON, NOON + LONGEST_SNOOZE + timedelta(seconds=1)]
)
def test_a_snooze_lies_ahead_and_ends_some_day(until):
    assert isinstance(standing.snoozed(OPEN, ADA, until, NOON), Kept)


def test_nothing_is_handed_to_whoever_has_it():
    assert isinstance(standing.handed_over(ACKNOWLEDGED, ADA, LATER), Kept)


def test_a_person_who_resolves_is_named_until_it_is_opened_again():
    ended = changed(standing.resolved(OPEN, ADA, LATER)).standing
    back = changed(standing.reopened(ended)).standing

    assert (ended.resolved_as, ended.resolved_by_id) == ("person", ADA)
    assert (back.resolved_at, back.resolved_as, back.resolved_by_id) == (None, "", None)
    assert back.times_reopened == 1
