"""Where an incident stands, and one pure function for every change.

Each gives the new standing with the step of its story and who is told, or says why nothing
changes. Only three things resolve one: a second healthy round, a fix that was verified, a person.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sessions_app.models import Happening, Incident, IncidentEvent

State, ResolvedBy = Incident.State, Incident.ResolvedBy
Step, Told = IncidentEvent.Kind, Happening.Kind

HEALTHY_ROUNDS_WANTED = 2
MOST_VERIFICATIONS = 3
LONGEST_SNOOZE = timedelta(days=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The fields of an incident that change, under the same names."""

    severity: int
    last_seen_at: datetime
    state: str = State.OPEN
    times_seen: int = 1
    healthy_rounds: int = 0
    times_reopened: int = 0
    owner_id: int | None = None
    acknowledged_at: datetime | None = None
    snoozed_until: datetime | None = None
    verify_at: datetime | None = None
    verifications_tried: int = 0
    remedy: str = ""
    resolved_at: datetime | None = None
    resolved_as: str = ""
    resolved_by_id: int | None = None

    @property
    def is_resolved(self) -> bool:
        return self.state == State.RESOLVED


@dataclass(frozen=True, slots=True)
class Changed:
    standing: Standing
    step: str
    """What is added to its story."""
    told: str = ""
    """What people are told, if anything."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Nothing changes, and why."""

    reason: str


Change = Changed | Kept

RESOLVED_ALREADY = Kept("it is resolved already")


def seen(now: Standing, at: datetime, severity: int, *, is_new_round: bool = True) -> Change:
    """A round found it not healthy. One round counts once, however many tiers say it. That it got
    worse is told: who wants to hear of what is critical alone has not heard of it yet."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if now.state == State.VERIFYING:
        return did_not_hold(now, at, severity)
    worse = severity > now.severity
    if worse and now.snoozed_until is not None:
        now = replace(now, acknowledged_at=None, snoozed_until=None)
    again = replace(
        _waiting(now),
        severity=severity,
        last_seen_at=at,
        times_seen=now.times_seen + is_new_round,
        healthy_rounds=0,
    )
    return Changed(again, Step.WORSE, Told.INCIDENT_OPENED) if worse else Changed(again, Step.SEEN)


def seen_healthy(now: Standing, at: datetime) -> Change:
    """The first healthy round makes it seem recovered, the second resolves it."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if now.state == State.VERIFYING:
        return Kept("its fix waits for a round of its own")
    rounds = now.healthy_rounds + 1
    recovered = replace(_waiting(now), healthy_rounds=rounds)
    if rounds < HEALTHY_ROUNDS_WANTED:
        return Changed(recovered, Step.RECOVERED)
    return Changed(_ended(recovered, at, ResolvedBy.ITSELF), Step.RESOLVED, Told.INCIDENT_RESOLVED)


def worked_on(now: Standing) -> Change:
    """A tier that may do something about it was asked for."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if now.state == State.VERIFYING:
        return Kept("its fix is being verified")
    return Changed(replace(now, state=State.WORKING, healthy_rounds=0), Step.WORKED_ON)


def work_ended(now: Standing) -> Change:
    """The chain is over and said nothing more of it: it must not look as if somebody were at it."""
    if now.state != State.WORKING:
        return Kept("nobody was working on it")
    return Changed(_waiting(now), Step.REOPENED)


def fixed(now: Standing, verify_at: datetime, remedy: str) -> Change:
    """By the word of the agent, so a fresh round is to look at it."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    being_verified = replace(
        now,
        state=State.VERIFYING,
        healthy_rounds=0,
        verify_at=verify_at,
        verifications_tried=0,
        remedy=remedy,
    )
    return Changed(being_verified, Step.FIXED)


def verified(now: Standing, at: datetime) -> Change:
    if now.state != State.VERIFYING:
        return _no_fix(now)
    return Changed(_ended(now, at, ResolvedBy.AGENT), Step.VERIFIED, Told.FIX_VERIFIED)


def not_verified(now: Standing, again_at: datetime | None) -> Change:
    """The round that was to look could not say: it is tried again a few times, and then, or where
    nobody will look again, a person is needed."""
    if now.state != State.VERIFYING:
        return _no_fix(now)
    tried = now.verifications_tried + 1
    if again_at is not None and tried < MOST_VERIFICATIONS:
        later = replace(now, verify_at=again_at, verifications_tried=tried)
        return Changed(later, Step.NOT_VERIFIED)
    given_up = replace(_waiting(now), verifications_tried=tried)
    return Changed(given_up, Step.NOT_VERIFIED, Told.INCIDENT_OPENED)


def did_not_hold(now: Standing, at: datetime, severity: int) -> Change:
    """Nobody has taken notice of this yet, whoever acknowledged it before."""
    if now.state != State.VERIFYING:
        return _no_fix(now)
    back = replace(
        now,
        state=State.OPEN,
        severity=severity,
        last_seen_at=at,
        times_seen=now.times_seen + 1,
        times_reopened=now.times_reopened + 1,
        healthy_rounds=0,
        acknowledged_at=None,
        snoozed_until=None,
        verify_at=None,
    )
    return Changed(back, Step.DID_NOT_HOLD, Told.FIX_DID_NOT_HOLD)


def acknowledged(now: Standing, by: int | None, at: datetime) -> Change:
    """Whoever says so first has it, unless somebody has it already."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    has_woken = now.snoozed_until is not None and now.snoozed_until <= at
    if now.acknowledged_at is not None and not has_woken:
        return Kept("it is acknowledged already")
    now = replace(now, snoozed_until=None) if has_woken else now
    changes_hands = now.owner_id is None and by is not None
    told = Told.INCIDENT_CHANGED_HANDS if changes_hands else ""
    return Changed(_acknowledged(now, by, at), Step.ACKNOWLEDGED, told)


def snoozed(now: Standing, by: int | None, until: datetime, at: datetime) -> Change:
    """It asks for nobody until then. What gets worse meanwhile asks at once."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if until <= at:
        return Kept("that moment is past")
    if until > at + LONGEST_SNOOZE:
        return Kept(f"it can be snoozed for at most {LONGEST_SNOOZE.days} days")
    return Changed(replace(_acknowledged(now, by, at), snoozed_until=until), Step.SNOOZED)


def handed_over(now: Standing, to: int | None, at: datetime) -> Change:
    """Somebody takes it or is given it; to nobody: it is let go, and open again."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if to == now.owner_id:
        return Kept("nobody has it" if to is None else "they have it already")
    if to is None:
        free = replace(now, owner_id=None, acknowledged_at=None, snoozed_until=None)
        free = _waiting(free) if free.state == State.ACKNOWLEDGED else free
        return Changed(free, Step.HANDED_OVER, Told.INCIDENT_CHANGED_HANDS)
    taken = replace(_acknowledged(now, to, at), owner_id=to)
    return Changed(taken, Step.HANDED_OVER, Told.INCIDENT_CHANGED_HANDS)


def noted(now: Standing) -> Change:
    """A word beside it, also after its end."""
    return Changed(now, Step.NOTED)


def resolved(now: Standing, by: int | None, at: datetime) -> Change:
    if now.is_resolved:
        return RESOLVED_ALREADY
    ended = replace(_ended(now, at, ResolvedBy.PERSON), resolved_by_id=by)
    return Changed(ended, Step.RESOLVED, Told.INCIDENT_RESOLVED)


def reopened(now: Standing) -> Change:
    """A person does not believe that it is over."""
    if not now.is_resolved:
        return Kept("it is not resolved")
    back = replace(
        now,
        state=State.OPEN,
        times_reopened=now.times_reopened + 1,
        healthy_rounds=0,
        acknowledged_at=None,
        resolved_at=None,
        resolved_as="",
        resolved_by_id=None,
    )
    return Changed(back, Step.REOPENED, Told.INCIDENT_OPENED)


def _no_fix(now: Standing) -> Kept:
    return RESOLVED_ALREADY if now.is_resolved else Kept("no fix of it is being verified")


def _waiting(now: Standing) -> Standing:
    """For a person: open, or acknowledged by whoever took notice of it before."""
    state = State.OPEN if now.acknowledged_at is None else State.ACKNOWLEDGED
    return replace(now, state=state, verify_at=None)


def _acknowledged(now: Standing, by: int | None, at: datetime) -> Standing:
    """What is being worked on or verified stays so: somebody knows of it, that is all."""
    state = State.ACKNOWLEDGED if now.state == State.OPEN else now.state
    owner = now.owner_id if now.owner_id is not None else by
    return replace(now, state=state, owner_id=owner, acknowledged_at=now.acknowledged_at or at)


def _ended(now: Standing, at: datetime, by: str) -> Standing:
    return replace(
        now,
        state=State.RESOLVED,
        resolved_at=at,
        resolved_as=by,
        snoozed_until=None,
        verify_at=None,
    )
