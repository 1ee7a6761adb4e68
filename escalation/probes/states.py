"""The state of a probe after each result, as a pure function.

A failure is soft until `fail_after` results in a row have failed; then the probe is down. It is up
again after `recover_after` good results in a row. A probe whose results change too often is
flapping: it is down once, and stays down until it is steady. While maintenance, a mute or the
failure of a probe that it needs holds it back, a failure is recorded and starts nothing; if it is
still down afterwards, it is told then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from sessions_app.models import Probe, ProbeChange

State, Kind = Probe.State, ProbeChange.Kind

RECENT = 20
FLAPS_FROM = 6
"""Changes among the recent results from which a probe is flapping."""
STEADY_UNTIL = 2
"""Changes among the recent results up to which it no longer is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeState:
    """The fields of a probe that results change, under the same names."""

    state: str = State.PENDING
    since: datetime | None = None
    failing_since: datetime | None = None
    last_good_at: datetime | None = None
    failures: int = 0
    successes: int = 0
    recent: str = ""
    is_flapping: bool = False
    is_told: bool = False

    @property
    def is_failing(self) -> bool:
        """True for a soft or hard failure."""
        return self.state == State.DOWN or self.failures > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    fail_after: int = 2
    recover_after: int = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A new state, and what has to be recorded and told."""

    state: ProbeState
    change: str = ""
    """Kind of the `ProbeChange`; empty if there is none."""
    tells_failure: bool = False
    tells_recovery: bool = False


def after(now: ProbeState, *, is_good: bool, at: datetime, rule: Rule, held: bool = False) -> Step:
    """Returns the state after one result. `held`: failures start nothing at the moment."""
    counted = _counted(now, is_good, at)
    if now.state == State.DOWN:
        is_over = counted.successes >= rule.recover_after and not counted.is_flapping
        return _up(counted, at) if is_over else _told(counted, held or is_good)
    begins_to_flap = counted.is_flapping and not now.is_flapping
    if begins_to_flap or counted.failures >= rule.fail_after:
        down = replace(
            counted, state=State.DOWN, since=at, failing_since=counted.failing_since or at
        )
        return _told(down, held, Kind.FLAPPING if begins_to_flap else Kind.DOWN)
    if now.state == State.PENDING and is_good:
        return Step(state=replace(counted, state=State.UP, since=at), change=Kind.UP)
    return Step(state=counted)


def _counted(now: ProbeState, is_good: bool, at: datetime) -> ProbeState:
    recent = (now.recent + ("1" if is_good else "0"))[-RECENT:]
    changes = sum(one != other for one, other in pairwise(recent))
    is_flapping = changes > STEADY_UNTIL if now.is_flapping else changes >= FLAPS_FROM
    if is_good:
        is_down = now.state == State.DOWN
        return replace(
            now,
            recent=recent,
            is_flapping=is_flapping,
            failures=0,
            successes=now.successes + 1,
            last_good_at=at,
            failing_since=now.failing_since if is_down else None,
        )
    return replace(
        now,
        recent=recent,
        is_flapping=is_flapping,
        failures=now.failures + 1,
        successes=0,
        failing_since=now.failing_since or at,
    )


def _told(down: ProbeState, held: bool, change: str = "") -> Step:
    if held or down.is_told:
        return Step(state=down, change=Kind.HELD if held and change else change)
    return Step(state=replace(down, is_told=True), change=change or Kind.DOWN, tells_failure=True)


def _up(counted: ProbeState, at: datetime) -> Step:
    up = replace(counted, state=State.UP, since=at, failing_since=None, is_told=False)
    return Step(state=up, change=Kind.UP, tells_recovery=counted.is_told)


def why_held(
    *, muted: bool, in_maintenance: bool, parents: Iterable[tuple[str, ProbeState]]
) -> str:
    """Returns why failures start nothing at the moment, or an empty string."""
    if in_maintenance:
        return "in maintenance"
    if muted:
        return "muted"
    failing = [name for name, state in parents if state.is_failing]
    return f"explained by {', '.join(failing)}" if failing else ""
