"""The state of a probe after a sequence of results, told from outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from escalation.probes.states import ProbeState, Rule, Step, after, why_held
from sessions_app.models import Probe, ProbeChange
from tests.tables import each_row

State, Kind = Probe.State, ProbeChange.Kind
START = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def played(
    results: str, *, fail_after: int = 2, recover_after: int = 2, held: str = ""
) -> list[Step]:
    """Play results, one a minute: `+` good, `-` failed. `held` has an h where it is held back."""
    rule = Rule(fail_after=fail_after, recover_after=recover_after)
    steps, state = [], ProbeState()
    for minute, result in enumerate(results):
        step = after(
            state,
            is_good=result == "+",
            at=START + timedelta(minutes=minute),
            rule=rule,
            held=held[minute : minute + 1] == "h",
        )
        steps.append(step)
        state = step.state
    return steps


# results, fail_after, recover_after, held; state at the end, changes, told
D, U, F, H = Kind.DOWN, Kind.UP, Kind.FLAPPING, Kind.HELD
TABLE = [
    ("+", 2, 2, "", State.UP, [U], []),
    ("-", 2, 2, "", State.PENDING, [], []),
    ("--", 2, 2, "", State.DOWN, [D], ["failure"]),
    ("-", 1, 1, "", State.DOWN, [D], ["failure"]),
    ("+-", 2, 2, "", State.UP, [U], []),
    ("+-+-", 2, 2, "", State.UP, [U], []),
    ("+--", 2, 2, "", State.DOWN, [U, D], ["failure"]),
    ("+-----", 2, 2, "", State.DOWN, [U, D], ["failure"]),
    ("+--+", 2, 2, "", State.DOWN, [U, D], ["failure"]),
    ("+--++", 2, 2, "", State.UP, [U, D, U], ["failure", "recovery"]),
    ("+--+-++", 2, 2, "", State.UP, [U, D, U], ["failure", "recovery"]),
    ("+-+", 1, 1, "", State.UP, [U, D, U], ["failure", "recovery"]),
    ("+---", 3, 1, "", State.DOWN, [U, D], ["failure"]),
    # held back: recorded and not told; told when the hold ends and it is still down
    ("+--", 2, 2, " hh", State.DOWN, [U, H], []),
    ("+---", 2, 2, " hhh", State.DOWN, [U, H], []),
    ("+---", 2, 2, " hh ", State.DOWN, [U, H, D], ["failure"]),
    ("+--++", 2, 2, " hh  ", State.UP, [U, H, U], []),
    ("+--++", 2, 2, " hhhh", State.UP, [U, H, U], []),
    ("+--++", 2, 2, "   hh", State.UP, [U, D, U], ["failure", "recovery"]),
    # flapping: told once, also if each failure is soft; up after it is steady
    ("+-+-+-+", 2, 2, "", State.DOWN, [U, F], ["failure"]),
    ("+-+-+-+-+-+-", 2, 2, "", State.DOWN, [U, F], ["failure"]),
    ("+-+-+-+" + "+" * 8, 2, 2, "", State.DOWN, [U, F], ["failure"]),
    ("+-+-+-+" + "+" * 17, 2, 2, "", State.UP, [U, F, U], ["failure", "recovery"]),
]


@each_row("results, fail_after, recover_after, held, state, changes, told", TABLE)
def test_state_changes_and_what_is_told(
    results, fail_after, recover_after, held, state, changes, told
):
    steps = played(results, fail_after=fail_after, recover_after=recover_after, held=held)

    assert steps[-1].state.state == state
    assert [step.change for step in steps if step.change] == changes
    assert [
        word
        for step in steps
        for word, is_so in (("failure", step.tells_failure), ("recovery", step.tells_recovery))
        if is_so
    ] == told


def test_a_failure_knows_when_it_began_and_the_last_good_result():
    down = played("+--")[-1].state

    assert down.last_good_at == START
    assert down.failing_since == START + timedelta(minutes=1)
    assert down.since == START + timedelta(minutes=2)


def test_the_end_of_a_failure_forgets_its_beginning():
    up = played("+--++")[-1].state

    assert (up.failing_since, up.is_told, up.failures) == (None, False, 0)


@given(st.text("+-", max_size=60), st.integers(1, 4), st.integers(1, 4), st.text(" h", max_size=60))
def test_failures_and_recoveries_are_told_in_turn(results, fail_after, recover_after, held):
    steps = played(results, fail_after=fail_after, recover_after=recover_after, held=held)
    told = [
        "failure" if step.tells_failure else "recovery"
        for step in steps
        if step.tells_failure or step.tells_recovery
    ]

    assert told[:1] in ([], ["failure"])
    assert all(one != other for one, other in pairwise(told))
    assert not any(
        step.tells_failure and held[minute : minute + 1] == "h" for minute, step in enumerate(steps)
    )
    assert all(len(step.state.recent) <= 20 for step in steps)


UP, SOFT = ProbeState(state=State.UP), ProbeState(state=State.UP, failures=1)
DOWN = ProbeState(state=State.DOWN)


@each_row(
    "muted, in_maintenance, parents, why",
    [
        (False, False, (), ""),
        (True, False, (), "muted"),
        (True, True, (), "in maintenance"),
        (False, False, (("router", UP),), ""),
        (False, False, (("router", SOFT),), "explained by router"),
        (False, False, (("router", DOWN), ("dns", DOWN)), "explained by router, dns"),
    ],
)
def test_what_holds_a_failure_back(muted, in_maintenance, parents, why):
    assert why_held(muted=muted, in_maintenance=in_maintenance, parents=parents) == why
