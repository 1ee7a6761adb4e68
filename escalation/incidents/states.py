"""States of an incident, with a pure function for each change.

A function returns the new state with the event and the notification that belong to it, or why
nothing changes. An incident is resolved by a second healthy cycle, a verified fix, or a person.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from escalation.errors import RefusalCode
from sessions_app.models import Incident, IncidentEvent, Notification

State, ResolvedBy = Incident.State, Incident.ResolvedBy
Step, Notify = IncidentEvent.Kind, Notification.Kind

HEALTHY_CYCLES_WANTED = 2
MOST_VERIFICATIONS = 3
LONGEST_SNOOZE = timedelta(days=30)


@dataclass(frozen=True, kw_only=True, slots=True)
class IncidentState:
    """The fields of an incident that change, under the same names."""

    severity: int
    last_seen_at: datetime
    state: str = State.OPEN
    times_seen: int = 1
    healthy_cycles: int = 0
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
    state: IncidentState
    step: str
    """The kind of the incident event."""
    notification: str = ""
    """The kind of the notification, if one is sent."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Nothing changes, for this reason."""

    code: RefusalCode
    reason: str


Change = Changed | Kept

RESOLVED_ALREADY = Kept(RefusalCode.INCIDENT_RESOLVED, "it is resolved already")
WAITS_FOR_VERIFICATION = Kept(RefusalCode.INCIDENT_STATE, "its fix waits for a cycle of its own")


def seen(
    now: IncidentState,
    at: datetime,
    severity: int,
    *,
    is_new_cycle: bool = True,
    is_certain: bool = True,
) -> Change:
    """A cycle found it unhealthy. A cycle counts once, however many tiers report it. A higher
    severity sends a notification: some channels have not received one yet. A cycle that could not
    tell the state (`is_certain` is False) does not lower the severity."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if now.state == State.VERIFYING:
        return did_not_hold(now, at, severity) if is_certain else WAITS_FOR_VERIFICATION
    severity = severity if is_certain else max(severity, now.severity)
    worse = severity > now.severity
    if worse and now.snoozed_until is not None:
        now = replace(now, acknowledged_at=None, snoozed_until=None)
    again = replace(
        _waiting(now),
        severity=severity,
        last_seen_at=at,
        times_seen=now.times_seen + is_new_cycle,
        healthy_cycles=0,
    )
    return (
        Changed(again, Step.WORSE, Notify.INCIDENT_OPENED) if worse else Changed(again, Step.SEEN)
    )


def failing(now: IncidentState, at: datetime, severity: int) -> Change:
    """A probe or an alert found it failing. A tier that works on it continues."""
    change = seen(now, at, severity)
    if now.state != State.WORKING or not isinstance(change, Changed):
        return change
    return replace(change, state=replace(change.state, state=State.WORKING))


def recovered(
    now: IncidentState, at: datetime, *, is_proved: bool, by_remedy: bool = False
) -> Change:
    """The probes or alerts that found it have ended, after a remedy if `by_remedy`.

    Without a proof it seems recovered, and a probe or a cycle has to confirm it. While a tier works
    on it, the end of the cycle decides whether the agent fixed it.
    """
    if now.is_resolved:
        return RESOLVED_ALREADY
    if now.state == State.VERIFYING:
        return verified(now, at) if is_proved else WAITS_FOR_VERIFICATION
    if now.state == State.WORKING or not is_proved:
        if now.healthy_cycles:
            return Kept(RefusalCode.INCIDENT_UNCHANGED, "it seems recovered already")
        return Changed(replace(now, healthy_cycles=1), Step.RECOVERED)
    ending = ResolvedBy.REMEDY if by_remedy else ResolvedBy.ITSELF
    return Changed(_ended(now, at, ending), Step.RESOLVED, Notify.INCIDENT_RESOLVED)


def repeated(now: IncidentState, at: datetime) -> Change:
    """An alert says again what is known. It disproves a healthy report, but no fix: the sender
    needs time to notice that."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    healthy = now.healthy_cycles if now.state == State.VERIFYING else 0
    return Changed(replace(now, last_seen_at=at, healthy_cycles=healthy), Step.SEEN)


def seen_healthy(now: IncidentState, at: datetime) -> Change:
    """A cycle found it healthy. The second in a row resolves it."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if now.state == State.VERIFYING:
        return WAITS_FOR_VERIFICATION
    cycles = now.healthy_cycles + 1
    recovered = replace(_waiting(now), healthy_cycles=cycles)
    if cycles < HEALTHY_CYCLES_WANTED:
        return Changed(recovered, Step.RECOVERED)
    return Changed(
        _ended(recovered, at, ResolvedBy.ITSELF), Step.RESOLVED, Notify.INCIDENT_RESOLVED
    )


def worked_on(now: IncidentState) -> Change:
    """A higher tier starts to work on it."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if now.state == State.VERIFYING:
        return Kept(RefusalCode.INCIDENT_STATE, "its fix is being verified")
    return Changed(replace(now, state=State.WORKING, healthy_cycles=0), Step.WORKED_ON)


def work_ended(now: IncidentState) -> Change:
    """The chain has ended without a result for it, so nobody works on it any more."""
    if now.state != State.WORKING:
        return Kept(RefusalCode.INCIDENT_STATE, "nobody was working on it")
    return Changed(_waiting(now), Step.REOPENED)


def fixed(now: IncidentState, verify_at: datetime, remedy: str) -> Change:
    """The agent reports a fix, which a fresh cycle verifies."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    being_verified = replace(
        now,
        state=State.VERIFYING,
        healthy_cycles=0,
        verify_at=verify_at,
        verifications_tried=0,
        remedy=remedy,
    )
    return Changed(being_verified, Step.FIXED)


def verified(now: IncidentState, at: datetime) -> Change:
    if now.state != State.VERIFYING:
        return _no_fix(now)
    return Changed(_ended(now, at, ResolvedBy.AGENT), Step.VERIFIED, Notify.FIX_VERIFIED)


def not_verified(now: IncidentState, again_at: datetime | None) -> Change:
    """The verifying cycle gave no result. It is repeated a few times; then a person is needed."""
    if now.state != State.VERIFYING:
        return _no_fix(now)
    tried = now.verifications_tried + 1
    if again_at is not None and tried < MOST_VERIFICATIONS:
        later = replace(now, verify_at=again_at, verifications_tried=tried)
        return Changed(later, Step.NOT_VERIFIED)
    given_up = replace(_waiting(now), verifications_tried=tried)
    return Changed(given_up, Step.NOT_VERIFIED, Notify.INCIDENT_OPENED)


def did_not_hold(now: IncidentState, at: datetime, severity: int) -> Change:
    """The fix did not hold. An earlier acknowledgement does not count."""
    if now.state != State.VERIFYING:
        return _no_fix(now)
    back = replace(
        now,
        state=State.OPEN,
        severity=severity,
        last_seen_at=at,
        times_seen=now.times_seen + 1,
        times_reopened=now.times_reopened + 1,
        healthy_cycles=0,
        acknowledged_at=None,
        snoozed_until=None,
        verify_at=None,
    )
    return Changed(back, Step.DID_NOT_HOLD, Notify.FIX_DID_NOT_HOLD)


def acknowledged(now: IncidentState, by: int | None, at: datetime) -> Change:
    """A person acknowledges it, and owns it if it has no owner."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    has_woken = now.snoozed_until is not None and now.snoozed_until <= at
    if now.acknowledged_at is not None and not has_woken:
        return Kept(RefusalCode.INCIDENT_UNCHANGED, "it is acknowledged already")
    now = replace(now, snoozed_until=None) if has_woken else now
    changes_hands = now.owner_id is None and by is not None
    notification = Notify.INCIDENT_CHANGED_HANDS if changes_hands else ""
    return Changed(_acknowledged(now, by, at), Step.ACKNOWLEDGED, notification)


def snoozed(now: IncidentState, by: int | None, until: datetime, at: datetime) -> Change:
    """Needs nobody until then. A higher severity ends the snooze."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if until <= at:
        return Kept(RefusalCode.INVALID_CHOICE, "that time is in the past")
    if until > at + LONGEST_SNOOZE:
        return Kept(
            RefusalCode.INVALID_CHOICE, f"it can be snoozed for at most {LONGEST_SNOOZE.days} days"
        )
    return Changed(replace(_acknowledged(now, by, at), snoozed_until=until), Step.SNOOZED)


def handed_over(now: IncidentState, to: int | None, at: datetime) -> Change:
    """Changes the owner. Without an owner it is open again."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    if to == now.owner_id:
        return Kept(
            RefusalCode.INCIDENT_UNCHANGED,
            "it has no owner" if to is None else "they are its owner already",
        )
    if to is None:
        free = replace(now, owner_id=None, acknowledged_at=None, snoozed_until=None)
        free = _waiting(free) if free.state == State.ACKNOWLEDGED else free
        return Changed(free, Step.HANDED_OVER, Notify.INCIDENT_CHANGED_HANDS)
    taken = replace(_acknowledged(now, to, at), owner_id=to)
    return Changed(taken, Step.HANDED_OVER, Notify.INCIDENT_CHANGED_HANDS)


def answered(now: IncidentState, *, is_approved: bool) -> Change:
    """A person answered a request for approval of a cycle that works on it."""
    if now.is_resolved:
        return RESOLVED_ALREADY
    return Changed(now, Step.APPROVED if is_approved else Step.REJECTED)


def noted(now: IncidentState) -> Change:
    """A person adds a note, also to a resolved incident."""
    return Changed(now, Step.NOTED)


def resolved(now: IncidentState, by: int | None, at: datetime) -> Change:
    if now.is_resolved:
        return RESOLVED_ALREADY
    ended = replace(_ended(now, at, ResolvedBy.PERSON), resolved_by_id=by)
    return Changed(ended, Step.RESOLVED, Notify.INCIDENT_RESOLVED)


def reopened(now: IncidentState) -> Change:
    """A person opens a resolved incident again."""
    if not now.is_resolved:
        return Kept(RefusalCode.INCIDENT_STATE, "it is not resolved")
    back = replace(
        now,
        state=State.OPEN,
        times_reopened=now.times_reopened + 1,
        healthy_cycles=0,
        acknowledged_at=None,
        resolved_at=None,
        resolved_as="",
        resolved_by_id=None,
    )
    return Changed(back, Step.REOPENED, Notify.INCIDENT_OPENED)


def _no_fix(now: IncidentState) -> Kept:
    if now.is_resolved:
        return RESOLVED_ALREADY
    return Kept(RefusalCode.INCIDENT_STATE, "no fix of it is being verified")


def _waiting(now: IncidentState) -> IncidentState:
    """Waits for a person: acknowledged if it was before, else open."""
    state = State.OPEN if now.acknowledged_at is None else State.ACKNOWLEDGED
    return replace(now, state=state, verify_at=None)


def _acknowledged(now: IncidentState, by: int | None, at: datetime) -> IncidentState:
    """Keeps the states working and verifying."""
    state = State.ACKNOWLEDGED if now.state == State.OPEN else now.state
    owner = now.owner_id if now.owner_id is not None else by
    return replace(now, state=state, owner_id=owner, acknowledged_at=now.acknowledged_at or at)


def _ended(now: IncidentState, at: datetime, by: str) -> IncidentState:
    return replace(
        now,
        state=State.RESOLVED,
        resolved_at=at,
        resolved_as=by,
        snoozed_until=None,
        verify_at=None,
    )
