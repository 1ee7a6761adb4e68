"""May a queued session start now? Asked when it is taken, and again at the moment of spawn."""

from __future__ import annotations

from escalation.policy.under_way import waits_for_others
from escalation.queue.hosts import not_for_this_host
from escalation.queue.one_at_a_time import one_at_a_time
from escalation.queue.places import Limits, running_tiers, wait_for_place
from escalation.run.heartbeat import this_runner
from escalation.tiers import LOWEST_TIER
from sessions_app.models import AccountClock, PauseSwitch, Session, WallsProof

TAKEN = "it was already taken"


def objection(session: Session) -> str:
    """Why it must wait, or nothing."""
    switch = PauseSwitch.current()
    if switch.paused:
        return f"Claude Ops is paused: {switch.reason or 'no reason given'}"
    if why := not_for_this_host(session) or waits_for_account(session):
        return why
    if session.tier > LOWEST_TIER and WallsProof.holding():
        return "the walls got worse since their last proof; an operator has to accept that"
    full = Limits.configured().objection(session.tier, running_tiers(without=session))
    return full or waits_for_others(session)


def waits_for_account(session: Session) -> str:
    """A drill asks nothing of the account."""
    clock = None if session.is_drill else AccountClock.holding()
    return clock.sentence if clock else ""


def admit(session: Session) -> str:
    """Claim the session if it may start. An answer is the reason why it waits or is not ours.

    Counting and claiming are one transaction, one process at a time: two workers cannot both take
    the last place or the last of a budget, and a place that is freed meanwhile is not missed by one
    who begins to wait.
    """
    with one_at_a_time():
        if reason := objection(session):
            wait_for_place(session)
            return reason
        if not session.claim(**this_runner(), waiting_since=None):
            return TAKEN
    return ""
